#define PY_SSIZE_T_CLEAN
#include <Python.h>

static long twice(long x) {
    return 2 * x;
}

static long clamp(long x) {
    if (x < 0)
        return 0;
    return x > 100 ? 100 : x;
}

static long unused(long x) {
    return x + 1;
}

static PyObject *speed_twice(PyObject *self, PyObject *arg) {
    return PyLong_FromLong(twice(PyLong_AsLong(arg)));
}

static PyObject *speed_clamp(PyObject *self, PyObject *arg) {
    return PyLong_FromLong(clamp(PyLong_AsLong(arg)));
}

static PyObject *speed_unused(PyObject *self, PyObject *arg) {
    return PyLong_FromLong(unused(PyLong_AsLong(arg)));
}

static PyMethodDef methods[] = {{"twice", speed_twice, METH_O, ""},
                                {"clamp", speed_clamp, METH_O, ""},
                                {"unused", speed_unused, METH_O, ""},
                                {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_speed", "", -1, methods};

PyMODINIT_FUNC PyInit__speed(void) {
    return PyModule_Create(&module);
}
