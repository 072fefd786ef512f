//! kubelet's and the controller manager's own storage metrics, if they can be read: a cross-check that
//! is shown next to claimcheck's measurements in the report, without affecting them.
//!
//! ```text
//! storage_operation_duration_seconds{operation_name, volume_plugin, status}    the whole operation
//! csi_operations_seconds{method_name, driver_name, grpc_status_code}           the driver's part of it
//! volume_manager_total_volumes{plugin_name, state}                             the volumes of a kubelet
//! ```
//!
//! Upstream: `pkg/volume/util/metrics.go`, `pkg/volume/csi/csi_metrics.go`,
//! `pkg/kubelet/volumemanager/metrics/metrics.go`. Counters count from a component's start, so they are read
//! before and after the run.

mod exposition;
mod scrape;

pub use scrape::{Stock, scrape};

use std::collections::BTreeMap;

use claimcheck_model::{StockComponent, StockMetrics, StockOperation, StockState};

use exposition::{Sample, samples};

const WHOLE: &str = "storage_operation_duration_seconds";
const RPC: &str = "csi_operations_seconds";
const VOLUMES: &str = "volume_manager_total_volumes";

/// The metrics of one instance at one time, for one driver.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reading {
    operations: BTreeMap<String, Histogram>,
    volumes: i64,
}

/// A histogram, with failures counted separately.
#[derive(Clone, Debug, Default, PartialEq)]
struct Histogram {
    count: u64,
    errors: u64,
    sum: f64,
    /// Cumulative counts by upper bound, keyed by the bits of the number.
    buckets: BTreeMap<u64, u64>,
}

impl Reading {
    fn of(text: &str, driver: &str) -> Self {
        let mut reading = Self::default();
        for sample in samples(text, &[WHOLE, RPC, VOLUMES]) {
            if sample.name == VOLUMES {
                reading.count_volumes(&sample, driver);
            } else if let Some((operation, failed)) = operation(&sample, driver) {
                reading.operations.entry(operation).or_default().enter(&sample, failed);
            }
        }
        reading
    }

    fn count_volumes(&mut self, sample: &Sample, driver: &str) {
        if is_plugin(sample.label("plugin_name"), driver) && sample.label("state") == "actual_state_of_world"
        {
            self.volumes += sample.value as i64;
        }
    }

    /// The difference since `before`.
    fn since(mut self, before: &Self) -> Self {
        for (name, operation) in &mut self.operations {
            if let Some(before) = before.operations.get(name) {
                operation.subtract(before);
            }
        }
        self.volumes -= before.volumes;
        self
    }

    fn add(&mut self, other: &Self) {
        for (name, operation) in &other.operations {
            self.operations.entry(name.clone()).or_default().add(operation);
        }
        self.volumes += other.volumes;
    }
}

/// The operation of a sample, and whether it failed; none for volumes of another driver.
fn operation(sample: &Sample, driver: &str) -> Option<(String, bool)> {
    if sample.name.starts_with(RPC) {
        let method = sample.label("method_name").rsplit('/').next().unwrap_or_default();
        let is_of_driver = sample.label("driver_name") == driver;
        return is_of_driver.then(|| (method.to_owned(), sample.label("grpc_status_code") != "OK"));
    }
    let is_of_driver = is_plugin(sample.label("volume_plugin"), driver);
    is_of_driver.then(|| (sample.label("operation_name").to_owned(), sample.label("status") != "success"))
}

/// `kubernetes.io/csi:<driver>`, or without the driver for components that do not distinguish drivers.
fn is_plugin(plugin: &str, driver: &str) -> bool {
    let rest = plugin.strip_prefix("kubernetes.io/csi");
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':') == Some(driver))
}

impl Histogram {
    fn enter(&mut self, sample: &Sample, failed: bool) {
        if sample.name.ends_with("_sum") {
            self.sum += sample.value;
        } else if sample.name.ends_with("_count") {
            self.count += sample.value as u64;
            self.errors += if failed { sample.value as u64 } else { 0 };
        } else if let Ok(le) = sample.label("le").parse::<f64>() {
            // The bits of positive numbers have the order of the numbers.
            *self.buckets.entry(le.to_bits()).or_default() += sample.value as u64;
        }
    }

    fn subtract(&mut self, before: &Self) {
        // The component was restarted: it counts from its start.
        if self.count < before.count {
            return;
        }
        self.count -= before.count;
        self.errors = self.errors.saturating_sub(before.errors);
        self.sum = (self.sum - before.sum).max(0.0);
        for (le, count) in &mut self.buckets {
            *count = count.saturating_sub(before.buckets.get(le).copied().unwrap_or_default());
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.sum += other.sum;
        for (le, count) in &other.buckets {
            *self.buckets.entry(*le).or_default() += count;
        }
    }

    fn operation(&self, name: &str) -> Option<StockOperation> {
        if self.count == 0 {
            return None;
        }
        let enough = (self.count as f64 * 0.95).ceil() as u64;
        let bucket = self.buckets.iter().find(|(_, count)| **count >= enough);
        let p95_within = bucket.map(|(le, _)| f64::from_bits(*le)).filter(|le| le.is_finite());
        let (name, mean) = (name.to_owned(), self.sum / self.count as f64);
        Some(StockOperation { name, count: self.count, errors: self.errors, mean, p95_within })
    }
}

/// The metrics of the instances of a component between two readings; by the instance's name, or why it did not
/// respond.
fn measured(
    component: StockComponent,
    before: &BTreeMap<String, Result<Reading, String>>,
    after: &BTreeMap<String, Result<Reading, String>>,
) -> StockMetrics {
    let mut all = Reading::default();
    let mut answered = 0;
    let mut why = None;
    for (instance, now) in after {
        match (before.get(instance), now) {
            (Some(Ok(then)), Ok(now)) => {
                all.add(&now.clone().since(then));
                answered += 1;
            }
            (_, Err(reason)) | (Some(Err(reason)), Ok(_)) => why = Some(reason.clone()),
            (None, Ok(_)) => why = Some(format!("{instance} did not exist when the run started")),
        }
    }
    let state = if answered > 0 {
        let operations = all.operations.iter().filter_map(|(name, one)| one.operation(name)).collect();
        let volumes_left = match component {
            StockComponent::Kubelet => Some(all.volumes),
            StockComponent::KubeControllerManager => None,
        };
        StockState::Measured { answered, of: after.len(), operations, volumes_left }
    } else {
        let none = || format!("no {} is reachable through the API", component.name());
        StockState::Absent { reason: why.unwrap_or_else(none) }
    };
    StockMetrics { component, state }
}

#[cfg(test)]
mod tests;
