//! The layer in front of the driver's services, and its state.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;
use tonic::{Response, Status};

use super::{
    Variant, Variants,
    messages::{Field, Message},
    turns::Turns,
};
use crate::driver::Driver;

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// A driver with variants in its services. Cheap to clone; clones are the same driver.
#[derive(Clone)]
pub struct Varied {
    pub(super) sound: Driver,
    pub(super) variants: Arc<Variants>,
    pub(super) started: Instant,
    turns: Arc<Turns>,
    /// The ids of nodes in requests, as the driver writes them.
    nodes: Arc<Mutex<BTreeSet<String>>>,
}

impl Varied {
    pub(super) fn new(sound: Driver, variants: Variants) -> Self {
        let turns = Arc::new(Turns::new(variants.clone()));
        Self { sound, variants: Arc::new(variants), started: Instant::now(), turns, nodes: Arc::default() }
    }

    pub(super) fn has(&self, variant: Variant) -> bool {
        self.variants.has(variant)
    }

    /// Makes a call: `call` sees the messages as the driver writes them.
    pub(super) async fn serve<Q, A, F>(&self, mut request: Q, call: impl FnOnce(Self, Q) -> F) -> Answer<A>
    where
        Q: Message,
        A: Message + Send + 'static,
        F: Future<Output = Answer<A>> + Send + 'static,
    {
        let objects = self.receive(&mut request);
        let answer = self.turns.take(objects, call(self.clone(), request));
        let mut answer = answer.await.map_err(|status| self.worded(status))?;
        answer.get_mut().fields().into_iter().for_each(|field| self.variants.outward(field));
        Ok(answer)
    }

    /// Translates a request; returns the ids of the objects that it is about.
    fn receive(&self, request: &mut impl Message) -> Vec<String> {
        request.fields().into_iter().for_each(|field| self.variants.inward(field));
        let mut objects: Vec<String> = request.named().into_iter().collect();
        for field in request.fields() {
            match field {
                Field::Id(id) if !id.is_empty() => objects.push(id.clone()),
                Field::Node(node) if !node.is_empty() => {
                    self.nodes().insert(node.clone());
                }
                _ => {}
            }
        }
        objects
    }

    /// An error that names nodes as callers see them.
    fn worded(&self, status: Status) -> Status {
        let mut message = status.message().to_owned();
        for node in self.nodes().iter() {
            message = message.replace(node.as_str(), &self.variants.node_id(node));
        }
        Status::new(status.code(), message)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Implements a service: the calls of the first list by the free functions of that name, the others by
/// delegation.
macro_rules! serve {
    ($service:ident {
        varied { $($varied:ident($request:ident) -> $answer:ty;)* }
        sound { $($same:ident($asked:ident) -> $response:ty;)* }
    }) => {
        #[tonic::async_trait]
        impl $service for crate::variant::Varied {
            $(async fn $varied(&self, request: tonic::Request<v1::$request>) -> Answer<$answer> {
                let call = |layer: Self, request| async move { $varied(&layer, request).await };
                self.serve(request.into_inner(), call).await
            })*
            $(async fn $same(&self, request: tonic::Request<v1::$asked>) -> Answer<$response> {
                let call = |layer: Self, request| async move {
                    $service::$same(&layer.sound, tonic::Request::new(request)).await
                };
                self.serve(request.into_inner(), call).await
            })*
        }
    };
}
pub(super) use serve;
