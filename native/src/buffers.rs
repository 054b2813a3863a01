//! Python's buffers as slices. All unsafe code of the crate is here.
//!
//! What is read or written is exported meanwhile, so Python can neither free nor resize it. Python must not write to a
//! buffer while it is read here: mm2py stamps batches on the event loop, which waits for these calls.

#![allow(unsafe_code)]

use std::{ptr, slice};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyOverflowError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// Calls that read less keep the lock of the interpreter: giving it away takes longer than they do.
const SMALL_BYTES: usize = 8 << 10;

/// An exported buffer.
pub struct Input(PyBuffer<u8>);

impl Input {
    pub fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: contiguous bytes, exported as long as `self` lives.
            size => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), size) },
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Input {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Self(buffer))
    }
}

/// Let other threads run Python meanwhile, if it is worth it.
pub fn without_lock<T: Send>(py: Python<'_>, read_bytes: usize, work: impl Send + FnOnce() -> T) -> T {
    if read_bytes > SMALL_BYTES { py.detach(work) } else { work() }
}

/// A bytearray with whatever was in its memory: clearing it first costs as much as a merge writes. Who fills it reads
/// nothing that it has not written.
fn unfilled(py: Python<'_>, size: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let size = ffi::Py_ssize_t::try_from(size).map_err(|_| PyOverflowError::new_err("too large"))?;
    // SAFETY: a new bytearray, or null with an exception. Without a source, nothing is copied into it.
    unsafe {
        let array = ffi::PyByteArray_FromStringAndSize(ptr::null(), size);
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

/// Make a bytearray of up to `most` bytes: `fill` writes it and returns its size, or None for no bytearray. It must have
/// written all bytes up to that size: the others hold what was in the memory before.
pub fn filled<'py, T: Send>(
    py: Python<'py>,
    most: usize,
    fill: impl Send + FnOnce(&mut [u8]) -> Option<(usize, T)>,
) -> PyResult<Option<(Bound<'py, PyByteArray>, T)>> {
    let array = unfilled(py, most)?;
    let export = PyBuffer::<u8>::get(&array)?;
    // SAFETY: exported, so of this size until `export` is dropped, and not shared yet.
    let memory = unsafe { slice::from_raw_parts_mut(export.buf_ptr().cast::<u8>(), export.len_bytes()) };
    let done = without_lock(py, most, || fill(memory));
    drop(export);
    let Some((size, more)) = done else { return Ok(None) };
    array.resize(size)?;
    Ok(Some((array, more)))
}
