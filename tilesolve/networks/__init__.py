"""Networks: ONNX models as programs of layers, pipelines and views."""
