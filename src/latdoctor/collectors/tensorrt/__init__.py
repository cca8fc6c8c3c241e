"""What trtexec writes of TensorRT engines: layers, their times, each run's times, and the log of the build."""
