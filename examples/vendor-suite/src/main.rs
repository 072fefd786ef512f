//! claimcheck with the vendor's cases: `cargo run -- run acme::`, `cargo run -- csi --driver ./acme-csi acme::`.

fn main() -> std::process::ExitCode {
    claimcheck::main(vendor_suite::cases())
}
