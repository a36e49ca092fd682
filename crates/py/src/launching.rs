//! What to start, as Python hands it over.

use crate::errors::to_python;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use weft_host::{Error, ErrorKind, Launch};

/// The environment of a program, as Python hands it over.
pub type Environment = Vec<(OsString, OsString)>;

/// What to start, as Python says it.
pub fn launch_of(
    command: Vec<OsString>,
    environment: Option<Environment>,
    directory: Option<PathBuf>,
    streams: [Option<i32>; 3],
) -> PyResult<Launch> {
    let [input, output, error] = streams.map(|stream| stream.map(duplicate).transpose());
    let streams = [input?, output?, error?];
    Ok(Launch { command, environment, directory, streams, ..Launch::default() })
}

/// A copy of one of Python's descriptors, to be kept.
pub fn duplicate(descriptor: i32) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(to_python(Error::new(
            ErrorKind::InvalidArgument,
            format!("{descriptor} is no file descriptor"),
        )));
    }
    // SAFETY: it is only borrowed for this call; whether it is open is what the call finds out.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?)
}
