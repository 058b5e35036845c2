"""Tidepool from Python, by ctypes and the C API (tools/c_api/tidepool.h): a binding to begin one's own with.

  import numpy, tidepool
  x = tidepool.from_numpy(numpy.ones((2, 3), numpy.float32))    # nothing is copied
  y = tidepool.call("softmax", x, axis=1)
  numpy.from_dlpack(y)                                          # nothing is copied

The library is found by TIDEPOOL_LIBRARY, else as the system finds libtidepool.so.1.
"""
import collections
import ctypes
import json
import math
import os
import sys

API_VERSION = 1
DTYPES = ["float32", "int64", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "bool", "int16", "uint16",
          "uint32", "uint64"]  # by tidepool_dtype

_lib = ctypes.CDLL(os.environ.get("TIDEPOOL_LIBRARY", "libtidepool.so.1"))
_lib.tidepool_error_message.restype = ctypes.c_char_p
_lib.tidepool_status_name.restype = ctypes.c_char_p
_lib.tidepool_text_free.argtypes = [ctypes.c_void_p]
_lib.tidepool_text_free.restype = None
if _lib.tidepool_api_version() < API_VERSION:
  raise ImportError("libtidepool.so.1 is older than this module")


class Error(Exception):
  """What a call refused: `status` is the name of the code, the text says what, where, found and expected."""

  def __init__(self, status, message):
    super().__init__(message)
    self.status = status


# Handles and pointers are c_void_p, sizes c_size_t, as the header has them; ctypes would take numbers for ints of 32 bits.
_HANDLE, _TEXT, _SIZE, _POINTER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p


def _function(name, *argtypes):
  function = getattr(_lib, "tidepool_" + name)
  function.argtypes = argtypes
  function.restype = ctypes.c_int

  def checked(*arguments):
    status = function(*arguments)
    if status != 0:
      raise Error(_lib.tidepool_status_name(status).decode(), _lib.tidepool_error_message().decode(errors="replace"))

  return checked


def _made(function, *arguments):
  """Calls a function whose last argument is where a handle goes."""
  handle = ctypes.c_void_p()
  function(*arguments, ctypes.byref(handle))
  return handle.value


def _json(function, *arguments):
  text = ctypes.c_void_p()
  function(*arguments, ctypes.byref(text))
  try:
    return json.loads(ctypes.string_at(text.value).decode())
  finally:
    _lib.tidepool_text_free(text)


def _utf8(text):
  return None if text is None else text.encode()


_memory_report = _function("memory_report", _POINTER)
_operators = _function("operators", _POINTER)
_array_full = _function("array_full", _HANDLE, ctypes.c_int, ctypes.c_int32, _POINTER, ctypes.c_double, _POINTER)
_array_release = _function("array_release", _HANDLE)
_array_detach = _function("array_detach", _HANDLE, _POINTER)
_array_get_info = _function("array_get_info", _HANDLE, _POINTER)
_array_to_dlpack = _function("array_to_dlpack", _HANDLE, _POINTER, ctypes.c_uint32, _POINTER)
_array_from_dlpack = _function("array_from_dlpack", _POINTER, _POINTER, _POINTER)
_call = _function("call", _TEXT, _TEXT, _POINTER, _SIZE, _POINTER, _SIZE)
_operator_new = _function("operator_new", _TEXT, _TEXT, _POINTER)
_operator_release = _function("operator_release", _HANDLE)
_operator_run = _function("operator_run", _HANDLE, _POINTER, _SIZE, _POINTER, _SIZE)
_operator_run_into = _function("operator_run_into", _HANDLE, _POINTER, _SIZE, _POINTER, _SIZE)
_manager_new = _function("manager_new", _HANDLE, _TEXT, _TEXT, _POINTER)
_manager_release = _function("manager_release", _HANDLE)
_manager_enter = _function("manager_enter", _HANDLE)
_manager_leave = _function("manager_leave", _HANDLE)
_workspace_new = _function("workspace_new", _TEXT, _TEXT, _TEXT, _POINTER)
_workspace_release = _function("workspace_release", _HANDLE)
_workspace_begin = _function("workspace_begin", _HANDLE)
_workspace_end = _function("workspace_end", _HANDLE)
_workspace_abandon = _function("workspace_abandon", _HANDLE)
_workspace_stats = _function("workspace_stats", _HANDLE, _POINTER)
_model_load = _function("model_load", _TEXT, _TEXT, _POINTER)
_model_release = _function("model_release", _HANDLE)
_model_describe = _function("model_describe", _HANDLE, _POINTER)
_predictor_new = _function("predictor_new", _HANDLE, _TEXT, _POINTER)
_predictor_release = _function("predictor_release", _HANDLE)
_predictor_predict = _function("predictor_predict", _HANDLE, _POINTER, _SIZE, ctypes.c_int64, _POINTER, _SIZE)
_predictor_stats = _function("predictor_stats", _HANDLE, _POINTER)


class _Owned:
  """An object with a handle, which is released with it, or by close()."""

  def __init__(self, handle):
    self._handle = handle

  def close(self):
    if self._handle is not None:
      self._release(self._handle)  # it may be refused: then it is still to be done
      self._handle = None

  def __del__(self):
    if getattr(self, "_handle", None) is not None:
      self.close()


class _ArrayInfo(ctypes.Structure):
  _fields_ = [("struct_size", ctypes.c_size_t), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
              ("dims", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8), ("elements", ctypes.c_int64),
              ("device", ctypes.c_char * 40), ("is_alive", ctypes.c_int32), ("is_dense", ctypes.c_int32),
              ("in_workspace", ctypes.c_int32), ("is_read_only", ctypes.c_int32)]


# DLPack's capsules: one that nobody took ("dltensor") lets its tensor go, one that was taken ("used_dltensor") is the taker's.
_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_FRESH, _USED = b"dltensor", b"used_dltensor"
# A capsule's destructor may be called while an exception is on its way (of who could not take the tensor), where no Python may
# run. So they have none: they are kept here, and looked at when nothing is on its way.
_given = collections.deque()


def _end_unused_capsules():
  for _ in range(len(_given)):
    try:
      capsule = _given.popleft()
    except IndexError:  # another thread has it
      return
    if sys.getrefcount(capsule) > 2:  # this function's and getrefcount's
      _given.append(capsule)
    elif _api.PyCapsule_IsValid(capsule, _FRESH):
      _array_release(_array_from_address(_api.PyCapsule_GetPointer(capsule, _FRESH)))


def _array_from_address(tensor):
  return _made(_array_from_dlpack, tensor, None)


class Array(_Owned):
  """An array of Tidepool's; numpy.from_dlpack() and torch.from_dlpack() take it."""
  _release = staticmethod(_array_release)

  def close(self):
    super().close()
    if _given:
      _end_unused_capsules()

  def info(self):
    info = _ArrayInfo(struct_size=ctypes.sizeof(_ArrayInfo))
    _array_get_info(self._handle, ctypes.byref(info))
    return info

  @property
  def shape(self):
    info = self.info()
    return tuple(info.dims[:info.rank])

  @property
  def dtype(self):
    return DTYPES[self.info().dtype]

  @property
  def is_alive(self):
    return bool(self.info().is_alive)

  def detach(self):
    """On the heap: no cycle and no manager ends it."""
    return Array(_made(_array_detach, self._handle))

  def __dlpack__(self, stream=None):
    where = None if stream is None else ctypes.byref(ctypes.c_int64(stream))
    _end_unused_capsules()
    capsule = _api.PyCapsule_New(_made(_array_to_dlpack, self._handle, where, 0), _FRESH, None)
    _given.append(capsule)
    return capsule

  def __dlpack_device__(self):
    device = self.info().device.decode()
    return (2, int(device[5:])) if device.startswith("cuda:") else (1, 0)


def from_numpy(array):
  """An array over the same bytes (of anything with __dlpack__)."""
  capsule = array.__dlpack__()
  result = Array(_array_from_address(_api.PyCapsule_GetPointer(capsule, _FRESH)))
  _api.PyCapsule_SetName(capsule, _USED)
  return result


def full(shape, value, dtype="float32"):
  dims = (ctypes.c_int64 * len(shape))(*shape)
  return Array(_made(_array_full, None, DTYPES.index(dtype), len(shape), dims, value))


def _attributes(values):
  """As JSON, which has no numbers that are not finite: the library has "nan", "inf" and "-inf" for them."""

  def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
      return str(value)
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value

  return json.dumps({name: plain(value) for name, value in values.items()}, allow_nan=False).encode()


def _handles(arrays):
  return (ctypes.c_void_p * len(arrays))(*[None if array is None else array._handle for array in arrays])


def _results(handles):
  arrays = [Array(handle) for handle in handles]
  return arrays[0] if len(arrays) == 1 else arrays


def call(name, *inputs, outputs=1, **attributes):
  """An operator by its name; operators() lists them."""
  made = (ctypes.c_void_p * outputs)()
  _call(name.encode(), _attributes(attributes), _handles(inputs), len(inputs), made, outputs)
  return _results(made)


class Operator(_Owned):
  """One whose attributes are read once."""
  _release = staticmethod(_operator_release)

  def __init__(self, name, outputs=1, **attributes):
    super().__init__(_made(_operator_new, name.encode(), _attributes(attributes)))
    self._outputs = outputs

  def __call__(self, *inputs, out=None):
    """`out`: a list of arrays that the results are written to."""
    if out is not None:
      return _operator_run_into(self._handle, _handles(inputs), len(inputs), _handles(out), len(out))
    made = (ctypes.c_void_p * self._outputs)()
    _operator_run(self._handle, _handles(inputs), len(inputs), made, self._outputs)
    return _results(made)


def operators():
  return _json(_operators)


def memory_report():
  return _json(_memory_report)


class Manager(_Owned):
  """Owns arrays and the managers below it: closing it ends them. Within `with` what is made is its own."""
  _release = staticmethod(_manager_release)

  def __init__(self, name, parent=None, device=None):
    super().__init__(_made(_manager_new, parent and parent._handle, name.encode(), _utf8(device)))

  def __enter__(self):
    _manager_enter(self._handle)
    return self

  def __exit__(self, *exception):
    _manager_leave(self._handle)


class Workspace(_Owned):
  """`with workspace:` is a cycle: what is made in it is gone at its end, the memory stays for the next one."""
  _release = staticmethod(_workspace_release)

  def __init__(self, name, device=None, **config):
    super().__init__(_made(_workspace_new, name.encode(), _attributes(config), _utf8(device)))

  def __enter__(self):
    _workspace_begin(self._handle)
    return self

  def __exit__(self, kind, *exception):
    (_workspace_end if kind is None else _workspace_abandon)(self._handle)

  def stats(self):
    return _json(_workspace_stats, self._handle)


class Model(_Owned):
  """A model from a file of `tidepool train`."""
  _release = staticmethod(_model_release)

  def __init__(self, path, device=None):
    super().__init__(_made(_model_load, str(path).encode(), _utf8(device)))

  def describe(self):
    return _json(_model_describe, self._handle)


class Predictor(_Owned):
  """Requests of one thread against a model."""
  _release = staticmethod(_predictor_release)

  def __init__(self, model, **options):
    super().__init__(_made(_predictor_new, model._handle, _attributes(options)))

  def predict(self, features, results):
    """Of NumPy arrays in row-major order: features [examples, ...] to results [examples, ...], which are there."""
    if not (features.flags.c_contiguous and results.flags.c_contiguous):
      raise ValueError("features and results are to be row-major without gaps")
    _predictor_predict(self._handle, features.ctypes.data, features.nbytes, len(features), results.ctypes.data, results.nbytes)

  def stats(self):
    return _json(_predictor_stats, self._handle)
