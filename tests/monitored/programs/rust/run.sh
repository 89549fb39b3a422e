# The compiler, which has its own allocator and several threads, and cargo; then a program with threads and a panic.
cargo init --quiet --vcs none --name program . && cp "$FILES/main.rs" src/main.rs || exit 1
cargo build --quiet --offline --release --jobs 2 || exit 1
cargo test --quiet --offline 2>&1 | grep 'test result' | sed 's/; finished in.*//'
./target/release/program
echo "exit code $?"
echo 'fn main() { let x: i32 = "text"; }' >src/main.rs
cargo build --quiet --offline --color never
echo "exit code $?"
