//! The embedded API server compared with kube-apiserver: both receive the same requests, and their responses
//! must be equal.
//!
//! `corpus/` has the requests: scenarios for every kind that both serve, always the same ones.
//! `differences.yaml` has the known differences with their reasons: any other fails the test, as does an
//! entry that no longer occurs. Requires etcd and kube-apiserver in `KUBEBUILDER_ASSETS` or `PATH`.
//!
//! `CLAIMCHECK_DIFFERENTIAL_LOGS` names the file (`x.txt`) that gets the report, or its folder (then it is
//! `apiserver.txt` there); all differences are written next to it (`x.ndjson`), and the known ones with the positions of
//! their entries (`x.known.ndjson`). `CLAIMCHECK_DIFFERENTIAL_ALL` sends
//! about all kinds what is otherwise sent about few. `CLAIMCHECK_DIFFERENTIAL_ONLY` is a part of the names of the
//! scenarios to run.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compare;
mod corpus;
mod known;
mod normalise;
mod play;
mod protobuf;
mod report;
mod side;
mod upstream;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use claimcheck_apiserver::{Config, start};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::compare::{Difference, compare};
use crate::corpus::{Kind, Scenario};
use crate::known::{Place, Table};
use crate::play::play;
use crate::report::{Finding, Report};
use crate::side::{Request, Side};
use crate::upstream::Upstream;

/// Scenarios that run at the same time; those with watches mostly wait.
const CONCURRENT: usize = 40;
/// The least number of requests, without a selection.
const REQUESTS: usize = 2000;

/// The changes of each resource that watches may start before: more than there are.
const HISTORY: usize = 100_000;
/// How long kube-apiserver may take to serve a custom kind, and the interval between two requests meanwhile.
const SERVED: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// The differences in the responses to one request.
struct Compared {
    place: Place,
    differences: Vec<Difference>,
    is_consequence: bool,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "requires envtest"]
async fn responses_equal_those_of_kube_apiserver() {
    claimcheck_needs::require("envtest");
    let assets = claimcheck_needs::envtest().expect("it is required");
    let started = Instant::now();
    let mut report = match run(&assets).await {
        Ok(report) => report,
        Err(error) => Report { errors: vec![error], ..Report::default() },
    };
    let file = report.write().unwrap_or_else(|error| {
        report.errors.push(error);
        None
    });
    print(&format!("{}; {} s", report.summary(), started.elapsed().as_secs()));
    if let Some(file) = file {
        print(&format!("report: {}", file.display()));
    }
    assert!(!report.is_failure(), "{}", report.text());
}

/// Prints a line that the test harness does not capture.
fn print(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").unwrap();
}

/// Runs all scenarios. An error is one of the test itself.
async fn run(assets: &Path) -> Result<Report, String> {
    let mut table = Table::read()?;
    let samples = corpus::samples();
    let config = Config { history: HISTORY, ..Config::default() };
    let server = start(config).await.map_err(|error| error.to_string())?;
    let built_in = Arc::new(Side::new(&server.kubeconfig()).await?);
    let upstream = Upstream::start(assets).await?;
    let stock = upstream.side.clone();
    let mut report = Report::default();
    let (of_stock, of_built_in) = tokio::join!(define(&stock), define(&built_in));
    report.errors.extend(of_stock.err().into_iter().chain(of_built_in.err()));
    let (of_stock, of_built_in) = tokio::join!(discover(&stock), discover(&built_in));
    let mut kinds = common(of_stock?, of_built_in?);
    // What only concerns kinds on which nothing acts here is not compared.
    let inert = corpus::inert();
    kinds.retain(|kind| !inert.contains(&kind.qualified()));
    for kind in &mut kinds {
        match samples.get(&kind.qualified()) {
            Some(sample) => kind.sample = sample.clone(),
            None => report.errors.push(format!("kinds.yaml has no sample of {}", kind.qualified())),
        }
    }
    let absent = samples.keys().filter(|name| !kinds.iter().any(|kind| kind.qualified() == **name));
    report.errors.extend(absent.map(|name| format!("{name} in kinds.yaml is not served by both servers")));
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    let mut scenarios = corpus::scenarios(&kinds, is_set("CLAIMCHECK_DIFFERENTIAL_ALL"));
    let only = std::env::var("CLAIMCHECK_DIFFERENTIAL_ONLY").ok();
    if let Some(only) = &only {
        scenarios.retain(|scenario| scenario.name.contains(only.as_str()));
    }
    let names: HashMap<String, String> =
        kinds.iter().map(|kind| (kind.qualified(), kind.kind.clone())).collect();
    for (scenario, compared) in play_all(scenarios, &stock, &built_in).await {
        match compared {
            Ok(compared) => add(&mut report, &mut table, &names, compared),
            Err(error) => report.errors.push(format!("{scenario}: {error}")),
        }
    }
    if only.is_none() {
        report.unused = table.unused();
        if report.requests < REQUESTS {
            report.errors.push(format!("only {} requests were sent", report.requests));
        }
    }
    drop(upstream);
    server.shutdown().await;
    Ok(report)
}

/// Adds the differences in the responses to all requests of a scenario.
fn add(report: &mut Report, table: &mut Table, names: &HashMap<String, String>, compared: Vec<Compared>) {
    for Compared { place, differences, is_consequence } in compared {
        report.requests += 1;
        if differences.is_empty() {
            report.equal += 1;
            continue;
        }
        // Known differences count as such, also where an earlier one is their cause.
        let kind_name = names.get(&place.kind).cloned().unwrap_or_default();
        let finding = |difference| Finding { place: place.clone(), difference, kind_name: kind_name.clone() };
        let mut unknown = Vec::new();
        for difference in differences {
            let entries = table.covering(&place, &difference);
            match entries.is_empty() {
                true => unknown.push(finding(difference)),
                false => report.known.push((entries, finding(difference))),
            }
        }
        if unknown.is_empty() {
            report.explained += 1;
        } else if is_consequence {
            report.consequences += 1;
        } else {
            report.findings.extend(unknown);
        }
    }
}

/// Runs the scenarios concurrently; returns their names and results in order.
async fn play_all(
    scenarios: Vec<Scenario>,
    stock: &Arc<Side>,
    built_in: &Arc<Side>,
) -> Vec<(String, Result<Vec<Compared>, String>)> {
    let names: Vec<String> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let permits = Arc::new(Semaphore::new(CONCURRENT));
    let mut tasks = JoinSet::new();
    for (number, scenario) in scenarios.into_iter().enumerate() {
        let (stock, built_in, permits) = (stock.clone(), built_in.clone(), permits.clone());
        tasks.spawn(async move {
            let _permit = permits.acquire().await;
            (number, compared(&scenario, &stock, &built_in).await)
        });
    }
    let mut results: Vec<_> =
        names.into_iter().map(|name| (name, Err("the scenario has panicked".to_owned()))).collect();
    while let Some(joined) = tasks.join_next().await {
        if let Ok((number, compared)) = joined {
            results[number].1 = Ok(compared);
        }
    }
    results
}

async fn compared(scenario: &Scenario, stock: &Side, built_in: &Side) -> Vec<Compared> {
    let exchanges = play(scenario, stock, built_in).await.into_iter();
    let compared = exchanges.map(|exchange| Compared {
        differences: compare(&exchange.stock, &exchange.built_in),
        place: Place {
            scenario: scenario.name.clone(),
            kind: scenario.kind.clone(),
            verb: exchange.verb,
            request: exchange.request,
        },
        is_consequence: exchange.is_consequence,
    });
    compared.collect()
}

/// Creates the custom kind, and returns once it is served.
async fn define(side: &Side) -> Result<(), String> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = side.send(&Request::post(definitions, &corpus::definition())).await;
    if created.status != 201 {
        return Err(format!("definition.yaml is rejected: {} {}", created.status, created.body));
    }
    let served = async {
        loop {
            let has_kind =
                discover(side).await.is_ok_and(|kinds| kinds.iter().any(|kind| kind.plural == "widgets"));
            let list = Request::get("/apis/real.example.com/v1/widgets");
            if has_kind && side.send(&list).await.status == 200 {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(SERVED, served).await.map_err(|_| "the custom kind is not served".to_owned())
}

/// The kinds in aggregated discovery.
async fn discover(side: &Side) -> Result<Vec<Kind>, String> {
    let mut documents = Vec::new();
    for path in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let answer = side.send(&Request { accept: Some(accept.to_owned()), ..Request::get(path) }).await;
        if answer.status != 200 {
            return Err(format!("{path}: discovery failed: {} {}", answer.status, answer.body));
        }
        documents.push(answer.body);
    }
    Ok(corpus::kinds(&documents))
}

/// The kinds of the embedded server that the stock one serves as well, with the subresources of the embedded
/// one.
fn common(stock: Vec<Kind>, built_in: Vec<Kind>) -> Vec<Kind> {
    let names: Vec<(String, String)> =
        stock.into_iter().map(|kind| (kind.api_version(), kind.plural)).collect();
    built_in
        .into_iter()
        .filter(|kind| {
            names.iter().any(|(version, plural)| *version == kind.api_version() && *plural == kind.plural)
        })
        .collect()
}
