//! The catalogue with the vendor's cases: `CLAIMCHECK_DRIVER=./acme-csi cargo test --test e2e`.

fn main() -> std::process::ExitCode {
    claimcheck::e2e(env!("CARGO_TARGET_TMPDIR").as_ref(), vendor_suite::on_a_cluster())
}
