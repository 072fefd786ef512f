//! The steps that bind a snapshot or group to its content, as far as both agree.
//!
//! Upstream: `pkg/common-controller`, `snapshot_controller.go` and `groupsnapshot_controller_helper.go`.

use std::sync::Arc;

use claimcheck_informer::{Cached as _, World, key_of};

use super::{
    content::{Class, Content, is_bound_to, is_meant_for, is_unprotected},
    finalizers::has,
    object::Object,
    trouble::{DefaultTrouble, Trouble},
};
use crate::claims::{annotation, name, ref_uid};

/// An action about a snapshot or group `O`.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding<O: Object> {
    /// Set the class to the default one.
    SetClass {
        /// The snapshot or group.
        object: Arc<O>,
        /// The class.
        class: String,
    },
    /// Add or remove finalizers.
    SetFinalizers {
        /// The snapshot or group.
        object: Arc<O>,
        /// All desired finalizers.
        finalizers: Vec<String>,
    },
    /// Create the content.
    CreateContent {
        /// The snapshot or group.
        object: Arc<O>,
        /// The content.
        content: Box<O::Content>,
    },
    /// Bind a pre-provisioned content.
    BindContent {
        /// The content.
        content: Arc<O::Content>,
        /// The snapshot or group.
        object: Arc<O>,
    },
    /// Add the content's finalizer until the driver has deleted the snapshot or group.
    HoldContent(Arc<O::Content>),
    /// Write the status.
    Report {
        /// The snapshot or group.
        object: Arc<O>,
        /// The status.
        status: Box<O::Status>,
    },
    /// Write an error to the status.
    Fail {
        /// The snapshot or group.
        object: Arc<O>,
        /// The error.
        trouble: Trouble,
    },
    /// Annotate the content that its snapshot or group is being deleted, for the driver's snapshotter.
    Announce(Arc<O::Content>),
    /// Delete the content, which is removed when the driver has deleted the snapshot or group.
    DeleteContent(Arc<O::Content>),
}

/// The next step, or an error.
pub type Step<O> = Result<Option<Binding<O>>, Trouble>;

/// Plans the content with this name.
pub fn plan_content<O: Object>(content: &str, world: &World) -> Option<Binding<O>> {
    let content = O::Content::store(world).named(content)?;
    is_unprotected(&**content).then(|| Binding::HoldContent(content.clone()))
}

/// A snapshot or group that is bound to the content with this name.
pub fn follow<O: Object>(object: &Arc<O>, content: &str, world: &World) -> Step<O> {
    let content = O::Content::store(world).named(content).ok_or(Trouble::ContentMissing)?;
    if !is_bound_to(&**content, object.metadata()) {
        return Err(Trouble::Unbound);
    }
    report(object, content, world)
}

/// One with a pre-provisioned content.
pub fn find<O: Object>(object: &Arc<O>, content: &str, world: &World) -> Step<O> {
    let content = O::Content::store(world).named(content).ok_or(Trouble::ContentMissing)?;
    if !content.is_pre_provisioned() {
        return Err(Trouble::NotPreProvisioned(name(&**content).to_owned()));
    }
    if !is_meant_for(&**content, object.metadata()) {
        return Err(Trouble::Misbound(name(&**content).to_owned()));
    }
    if let Some(hold) = hold(object, content.is_deleted_with_object()) {
        return Ok(Some(hold));
    }
    let unbound = ref_uid(content.bound_to()).is_none();
    if unbound || (content.class().is_none() && object.class().is_some()) {
        return Ok(Some(Binding::BindContent { content: content.clone(), object: object.clone() }));
    }
    report(object, content, world)
}

/// The content that was created for it, if it exists already.
pub fn created<'w, O: Object>(object: &O, world: &'w World) -> Result<Option<&'w Arc<O::Content>>, Trouble> {
    let Some(content) = O::Content::store(world).named(&object.created_content()) else { return Ok(None) };
    if content.is_pre_provisioned() {
        return Err(Trouble::NotDynamic(name(&**content).to_owned()));
    }
    if !is_bound_to(&**content, object.metadata()) {
        return Err(Trouble::Misbound(name(&**content).to_owned()));
    }
    Ok(Some(content))
}

/// Adds its finalizers; `with_content`: its content is deleted with it.
pub fn hold<O: Object>(object: &Arc<O>, with_content: bool) -> Option<Binding<O>> {
    let mut finalizers = object.metadata().finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    let missing = O::protections(with_content).iter().filter(|held| !has(object.metadata(), held));
    finalizers.extend(missing.map(|finalizer| (*finalizer).to_owned()));
    (finalizers.len() > before).then(|| Binding::SetFinalizers { object: object.clone(), finalizers })
}

/// Adds its finalizers, then writes the content's status, unless it has it already.
pub fn report<O: Object>(object: &Arc<O>, content: &O::Content, world: &World) -> Step<O> {
    if let Some(hold) = hold(object, content.is_deleted_with_object()) {
        return Ok(Some(hold));
    }
    let status = object.status_of(content, world)?;
    let is_new = object.status() != Some(&status);
    Ok(is_new.then(|| Binding::Report { object: object.clone(), status: Box::new(status) }))
}

/// Writes the error, unless the status has it already.
pub fn fail<O: Object>(object: &Arc<O>, trouble: Trouble) -> Option<Binding<O>> {
    let current_error = object.status().and_then(|status| O::error(status)?.message.as_deref());
    let is_new = current_error != Some(trouble.text(O::Content::WORDS, &key_of(&**object)).as_str());
    is_new.then(|| Binding::Fail { object: object.clone(), trouble })
}

/// The name of the driver's only default class.
pub fn default_class<C: Content>(driver: &str, world: &World) -> Result<String, DefaultTrouble> {
    let is_default = |class: &&Arc<C::Class>| {
        class.driver() == driver && annotation(&***class, C::Class::DEFAULT) == Some("true")
    };
    let mut defaults = C::Class::store(world).iter().filter(is_default);
    match (defaults.next(), defaults.count()) {
        (None, _) => Err(DefaultTrouble::None(C::WORDS.what)),
        (Some(class), 0) => Ok(name(&**class).to_owned()),
        (Some(_), more) => Err(DefaultTrouble::Several(more + 1)),
    }
}
