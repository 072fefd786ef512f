# What contributors do most; `just` lists it. Each recipe is a few commands, so that just itself is optional.

# List the recipes
default:
    @just --list

# Run the catalogue on the embedded cluster; FILTER selects cases
run *FILTER:
    cargo run -- run {{FILTER}}

# Run all checks, as CI does
test:
    ci/test

# Run the quick checks: format, lints, rules of the workspace
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo test --locked -p claimcheck --test tidy

# Review golden files that a change affects
review:
    cargo insta review

# Check a driver call by call: just csi 'exec:./mydriver --endpoint {endpoint} --nodeid {node_id}'
csi DRIVER *ARGUMENTS:
    cargo run -- csi --driver '{{DRIVER}}' {{ARGUMENTS}}

# Write the pages that are made of code and data, and build the book
docs:
    ci/docs --write

# Run the catalogue on kind
kind:
    cargo build --release --locked
    ci/kind quick

# Run every seeded defect against the cases that must find it
defects:
    ci/defects

# Run every legal variant of the driver: no case may fail
variants:
    ci/variants

# Start a development cluster; Ctrl-C deletes it
up:
    cargo run -- cluster up
