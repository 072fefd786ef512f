//! A volume of each access type that no case uses. It is written to before the other cases and read after all of them: a
//! call about one volume that changes another is noticed, whichever it is.

use anyhow::Result;
use claimcheck_engine::skip;

use crate::fixture::Fixture;

const TEXT: &str = "not to be changed by any case";

pub(super) async fn written(f: &Fixture) -> Result<()> {
    f.holding(TEXT).await?;
    Ok(())
}

pub(super) async fn unchanged(f: &Fixture) -> Result<()> {
    let volumes = f.made();
    if volumes.is_empty() {
        return Err(skip("no volume was created before the other cases"));
    }
    for volume in volumes {
        f.must_still_hold(&volume, TEXT, "in a volume that no case used, after all other cases").await?;
    }
    Ok(())
}
