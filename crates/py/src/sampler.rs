//! `weft._native.Sampler`: many values, read again and again.

use crate::target::Target;
use pyo3::prelude::*;
use weft_host::weave::ProbeId;

#[pyclass(frozen, module = "weft._native")]
pub struct Sampler {
    target: Py<Target>,
    inner: weft_host::weave::Sampler,
}

#[pymethods]
impl Sampler {
    #[new]
    fn new(py: Python<'_>, target: Py<Target>, data: Vec<(ProbeId, String)>) -> PyResult<Self> {
        let inner = {
            let target = target.get();
            py.detach(|| target.weaver(|weaver| weaver.sampler(&data)))?
        };
        Ok(Self { target, inner })
    }

    fn read(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        let target = self.target.get();
        py.detach(|| target.weaver(|weaver| weaver.sample(&self.inner)))
    }
}
