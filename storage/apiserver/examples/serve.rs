//! The API server alone: `cargo run -p claimcheck-apiserver --example serve -- KUBECONFIG [AUDIT_LOG]`
//! writes a kubeconfig and serves until it is interrupted.

use std::path::PathBuf;
use std::process::ExitCode;

use claimcheck_apiserver::{Config, start};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(kubeconfig) = arguments.next() else {
        eprintln!("usage: serve KUBECONFIG [AUDIT_LOG]");
        return ExitCode::from(2);
    };
    let config = Config { audit_log: arguments.next(), ..Config::default() };
    let server = match start(config).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = server.write_kubeconfig(&kubeconfig) {
        eprintln!("could not write {}: {error}", kubeconfig.display());
        return ExitCode::FAILURE;
    }
    println!("{}", server.url());
    if let Err(error) = tokio::signal::ctrl_c().await {
        eprintln!("could not wait for an interrupt: {error}");
    }
    for count in server.requests() {
        println!("{:6} {} {} {}", count.count, count.agent, count.verb, count.resource);
    }
    server.shutdown().await;
    ExitCode::SUCCESS
}
