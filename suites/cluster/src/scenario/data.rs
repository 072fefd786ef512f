//! Scripts of a scenario in pods, and data that they write and read.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_informer::quantity;
use claimcheck_scenario::Step;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};
use kube::Api;

use super::{
    exec::{self, Ended},
    play::Player,
};

/// The size of data, if a step does not say.
const SIZE: &str = "1Mi";
/// How often a script is repeated until its output is as expected.
const AGAIN: Duration = Duration::from_millis(300);
/// The exit code of a shell that did not find a command.
const NOT_FOUND: i32 = 127;
/// The bytes of a line of written data.
const LINE: u64 = 32;

impl Player {
    /// Runs the script of a step; repeats it within its deadline if it has one.
    pub(super) async fn exec(&self, pod: &str, step: &Step) -> Result<()> {
        let script = self.actor.references.fill(step.run.as_deref().unwrap_or_default());
        let expected = step.output.as_deref().map(|output| self.actor.references.fill(output));
        let end = tokio::time::Instant::now() + step.within.map_or(Duration::ZERO, |_| self.limit(step));
        loop {
            let ended = self.in_pod(pod, step, &script).await?;
            let wrong = if step.fails && ended.code == NOT_FOUND {
                Some(format!("a command of the script does not exist in the container: it {}", words(&ended)))
            } else if (ended.code == 0) == step.fails {
                let must = if step.fails { ", but must fail" } else { "" };
                Some(format!("the script {}{must}", words(&ended)))
            } else {
                let differs = expected.as_ref().filter(|expected| expected.trim() != ended.output);
                differs.map(|expected| {
                    format!("the script printed {:?} instead of {:?}", ended.output, expected.trim())
                })
            };
            match wrong {
                None => return Ok(()),
                Some(wrong) if tokio::time::Instant::now() >= end => bail!("{wrong}"),
                Some(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    pub(super) async fn in_pod(&self, pod: &str, step: &Step, script: &str) -> Result<Ended> {
        let (_, namespace, name) = self.actor.references.key(pod).map_err(anyhow::Error::msg)?;
        let api: Api<Pod> = Api::namespaced(self.actor.client.clone(), &namespace);
        let limit = self.limit(step);
        let ran =
            tokio::time::timeout(limit, exec::run(&api, &name, step.container.as_deref(), script)).await;
        ran.with_context(|| format!("the script in {pod} has not ended after {} s", limit.as_secs()))?
    }

    /// Writes lines that are known here, so that what is read later is compared with what was meant, not with what a
    /// volume has returned.
    pub(super) async fn write(&mut self, pod: &str, step: &Step) -> Result<()> {
        let path = step.path.clone().unwrap_or_default();
        let size = step.size.as_deref().unwrap_or(SIZE);
        let quantity = Quantity(size.to_owned());
        let size = quantity::bytes(&quantity).and_then(|size| u64::try_from(size).ok());
        let size =
            size.with_context(|| format!("size {} is no quantity: write for example 1Mi", quantity.0))?;
        let seed = claimcheck_model::sha256(format!("{}{path}{}", self.t.namespace(), self.written.len()));
        let (seed, lines) = (seed[..16].to_owned(), size.div_ceil(LINE));
        let script = format!(
            "awk 'BEGIN{{for(i=0;i<{lines};i++)printf \"{seed} %014d\\n\",i}}' | head -c {size} > {path} && sync"
        );
        let ended = self.in_pod(pod, step, &script).await?;
        ensure!(ended.code == 0, "the data cannot be written: the script {}", words(&ended));
        self.written.insert(path, (seed, size));
        Ok(())
    }

    pub(super) async fn read(&self, pod: &str, step: &Step) -> Result<()> {
        let path = step.path.clone().unwrap_or_default();
        let like = step.like.as_ref().unwrap_or(&path);
        let (seed, size) =
            self.written.get(like).with_context(|| format!("no step has written {like}: write it first"))?;
        let script = format!("[ -e {path} ] || {{ echo absent; exit; }}; head -c {size} {path} | sha256sum");
        let ended = self.in_pod(pod, step, &script).await?;
        ensure!(ended.code == 0, "the data cannot be read: the script {}", words(&ended));
        let differs = || format!("{path} does not hold the {size} bytes that were written at {like}");
        ensure!(ended.output != "absent", "{}: it does not exist", differs());
        let seen = ended.output.split_whitespace().next().unwrap_or_default();
        let expected = claimcheck_model::sha256(content(seed, *size));
        ensure!(seen == expected, "{}: its SHA-256 is {seen} instead of {expected}", differs());
        Ok(())
    }
}

/// What [`Player::write`] writes.
fn content(seed: &str, size: u64) -> Vec<u8> {
    let lines = (0..size.div_ceil(LINE)).map(|number| format!("{seed} {number:014}\n"));
    let mut bytes = lines.collect::<String>().into_bytes();
    bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    bytes
}

fn words(ended: &Ended) -> String {
    let printed = [("to standard error ", &ended.errors), ("", &ended.output)];
    let printed = printed.into_iter().filter(|(_, text)| !text.is_empty());
    let printed: Vec<String> = printed.map(|(to, text)| format!("{to}{text:?}")).collect();
    let printed = if printed.is_empty() { "nothing".to_owned() } else { printed.join(", and ") };
    format!("exited with {} and printed {printed}", ended.code)
}
