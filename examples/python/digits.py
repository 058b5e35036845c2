"""Tidepool's C API with NumPy: arrays without copies, an operator by name, cycles of a workspace, a trained model.

  TIDEPOOL_LIBRARY=bazel-bin/tools/c_api/libtidepool.so.1 python3 examples/python/digits.py MODEL IMAGES

MODEL: as `tidepool train --save` writes it; IMAGES: IDX, gzip. Prints what `tidepool predict` prints.
"""
import gzip
import sys

import numpy

import tidepool


def arrays_without_copies():
  x = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
  shared = tidepool.from_numpy(x)
  x[0, 0] = 10  # the array sees it: the bytes are the same
  y = numpy.from_dlpack(tidepool.call("scale_shift", shared, scale=2))
  numpy.testing.assert_array_equal(y, 2 * x)
  out = numpy.from_dlpack(shared)
  assert out.ctypes.data == x.ctypes.data

  attention = tidepool.call("softmax", tidepool.from_numpy(x), axis=1)
  expected = numpy.exp(x - x.max(axis=1, keepdims=True))
  expected /= expected.sum(axis=1, keepdims=True)
  numpy.testing.assert_allclose(numpy.from_dlpack(attention), expected, rtol=1e-6)


def steps_in_a_workspace(steps=20, warm=4):
  """Each step in memory that is there already; the total goes to an array of NumPy's."""
  total = numpy.zeros((64, 32), numpy.float32)
  weights = numpy.random.default_rng(1).standard_normal((128, 32)).astype(numpy.float32)
  w, into = tidepool.from_numpy(weights), tidepool.from_numpy(total)
  product, add = tidepool.Operator("matmul", relu=True), tidepool.Operator("add")
  step = tidepool.Workspace("step")
  for i in range(steps):
    if i == warm:
      before = tidepool.memory_report()["system_allocations"], step.stats()["spills"]
    with step:
      x = tidepool.full((64, 128), i)
      add(into, product(x, w), out=[into])
  after = tidepool.memory_report()["system_allocations"], step.stats()["spills"]
  assert after == before, (before, after)  # nothing was taken from the system, nor outside of the pages
  assert not x.is_alive                    # gone with its cycle
  try:
    numpy.from_dlpack(x)
    raise AssertionError("an array whose cycle has ended was given away")
  except tidepool.Error as error:
    assert error.status == "FAILED_PRECONDITION", error.status
  expected = sum(numpy.maximum(numpy.full((64, 128), i, numpy.float32) @ weights, 0) for i in range(steps))
  numpy.testing.assert_allclose(total, expected, rtol=1e-4)
  return step.stats()


def predict(model_path, images_path, batch=64):
  """As `tidepool predict`: class and probability of each image."""
  with gzip.open(images_path) as file:
    data = file.read()
  count, height, width = numpy.frombuffer(data, ">i4", 3, 4)
  images = numpy.frombuffer(data, numpy.uint8, offset=16).reshape(count, height, width, 1)
  model = tidepool.Model(model_path)
  predictor = tidepool.Predictor(model, softmax=True)
  classes = model.describe()["classes"]
  print("image,class,probability")
  for begin in range(0, count, batch):
    pixels = images[begin:begin + batch].astype(numpy.float32) / numpy.float32(255)
    probabilities = numpy.empty((len(pixels), classes), numpy.float32)
    predictor.predict(pixels, probabilities)
    for row, best in enumerate(probabilities.argmax(axis=1)):
      print(f"{begin + row},{best},{probabilities[row, best]:.4f}")


if __name__ == "__main__":
  arrays_without_copies()
  stats = steps_in_a_workspace()
  print(f"{stats['cycles']} steps, {stats['hits']} requests from the pages, {stats['spills']} outside", file=sys.stderr)
  predict(sys.argv[1], sys.argv[2])
