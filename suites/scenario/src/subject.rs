//! What a step waits for, or forbids: an object, an event, a call or a phase.

use claimcheck_model::{CsiMethod, Phase, UnknownMethod};

/// The subject of `until` and `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// An object: `claim data`.
    Object(&'a str),
    /// An event of an object: `event claim data`.
    Event(&'a str),
    /// A call for all claims or one: `call NodeStageVolume of claim data`.
    Call {
        /// The method.
        method: CsiMethod,
        /// `claim data`.
        claim: Option<&'a str>,
    },
    /// The end of a phase of all claims or one: `phase attach of claim data`.
    Phase {
        /// The phase.
        phase: Phase,
        /// `claim data`.
        claim: Option<&'a str>,
    },
}

impl<'a> Subject<'a> {
    /// The subject of a text.
    ///
    /// # Errors
    /// There is no such call or phase, or it is said to be of something that is no claim.
    pub fn parse(what: &'a str) -> Result<Self, String> {
        match what.split_once(' ') {
            Some(("event", object)) => Ok(Self::Event(object)),
            Some(("call", rest)) => {
                let (name, claim) = of_claim(rest)?;
                let method = name.parse().map_err(|error: UnknownMethod| error.to_string())?;
                Ok(Self::Call { method, claim })
            }
            Some(("phase", rest)) => {
                let (name, claim) = of_claim(rest)?;
                Ok(Self::Phase { phase: phase(name)?, claim })
            }
            _ => Ok(Self::Object(what)),
        }
    }
}

/// A name and the claim that follows it.
fn of_claim(text: &str) -> Result<(&str, Option<&str>), String> {
    match text.split_once(" of ") {
        None => Ok((text, None)),
        Some((name, claim)) if claim.starts_with("claim ") => Ok((name, Some(claim))),
        Some((_, other)) => {
            Err(format!("{other}: calls and phases are those of a claim: write `of claim` and its name"))
        }
    }
}

/// The phase of a name.
fn phase(name: &str) -> Result<Phase, String> {
    Phase::ALL.iter().copied().find(|phase| phase.name() == name).ok_or_else(|| {
        let known: Vec<_> = Phase::ALL.iter().copied().map(Phase::name).collect();
        format!("there is no phase {name}: known are {}", known.join(", "))
    })
}
