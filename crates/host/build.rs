//! Builds the agent for life without a libc and hands its file to `src/trip/image.rs`; and once more, with
//! the clone engine in it.
//!
//! Cargo cannot build one crate of a workspace with flags of its own, so this runs a second cargo,
//! in a target directory of its own, for the agent only.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// No libc, no start files, and an error for anything that would have to be found at run time.
const RUSTFLAGS: [&str; 13] = [
    "--cfg=weft_freestanding",
    "-Crelocation-model=pic",
    "-Ctarget-cpu=x86-64",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-Wl,-z,defs",
    "-Clink-arg=-Wl,-z,now",
    "-Clink-arg=-Wl,-z,norelro",
    "-Clink-arg=-Wl,-z,separate-code",
    "-Clink-arg=-Wl,-Bsymbolic",
    "-Clink-arg=-Wl,--gc-sections",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,--strip-debug",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .parent()
        .expect("this crate has siblings")
        .to_owned();
    for watched in ["agent", "abi", "code", "snippet"] {
        let watched = crates.join(watched);
        println!("cargo::rerun-if-changed={}", watched.join("src").display());
        println!("cargo::rerun-if-changed={}", watched.join("Cargo.toml").display());
    }
    println!("cargo::rerun-if-changed=build.rs");

    for (feature, variable) in [(None, "WEFT_AGENT"), (Some("clone"), "WEFT_CLONE")] {
        let target_dir = out.join(feature.unwrap_or("agent"));
        let status = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
            .args(["rustc", "--quiet", "--package=weft-agent", "--profile=agent"])
            .args(["--lib", "--crate-type=cdylib", "--target=x86_64-unknown-linux-gnu"])
            .args(feature.map(|feature| format!("--features={feature}")))
            .arg("--manifest-path")
            .arg(crates.join("agent/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\x1f"))
            .env_remove("RUSTFLAGS")
            // Clippy and other wrappers of the outer build are for the outer build.
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            // So is its linker: one that pins the C library of a wheel knows fewer flags than this needs.
            .env_remove("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER")
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the agent does not build");
        let file = target_dir.join("x86_64-unknown-linux-gnu/agent/libweft_agent.so");
        println!("cargo::rustc-env={variable}={}", file.display());
    }
}
