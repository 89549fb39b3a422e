//! The CUDA examples, on this machine's driver or the mock.

use std::process::Command;

#[test]
fn every_buffer_is_recorded_and_named() {
    let folder = std::env::temp_dir().join(format!("memtrack-cuda-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cuda_candle_like")).current_dir(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // 16 parameters, two moments of each; per step 20 outputs, their gradients, the parameters' gradients, and copies of those.
    let buffers = 16 + 3 * (20 + 20 + 16 + 16) + 32;
    assert!(text.contains(&format!("in {buffers} blocks")), "{text}");
    for named in ["block.3.linear.forward.matmul ", "block.0.forward.gelu ", "cuda_candle_like.Linear.new "] {
        assert!(text.contains(named), "{named} in {text}");
    }
    assert!(text.contains("live at the end   384.2 MiB"), "weights and moments: {text}");
    assert!(folder.join("memtrack-out/cuda.memtrack").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn temporaries_come_from_the_cache() {
    let output = Command::new(env!("CARGO_BIN_EXE_cuda_buffers")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // Three buffers and one temporary per step. Four live buffers fit into one segment; a copy on another stream needs its own.
    assert!(text.contains("requests met             53\nasked of the driver       2\n"), "{text}");
    assert!(text.contains("step.forward.half"), "{text}");
}
