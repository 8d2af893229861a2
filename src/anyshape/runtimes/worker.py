"""ONNX Runtime in a process of its own, for inputs that may bring it down. Run as a script, not imported.

Empty inputs abort some kernels of ONNX Runtime (LSTM, GRU and Einsum in 1.31), and an abort can't be caught.
Reads pickled feeds from standard input and writes pickled outputs to standard output, each behind its length.
"""

import pickle
import struct
import sys


def main() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while header := source.read(8):
        feed = pickle.loads(source.read(struct.unpack("<q", header)[0]))
        try:
            answer: object = session.run(None, feed)
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        data = pickle.dumps(answer)
        target.write(struct.pack("<q", len(data)) + data)
        target.flush()


if __name__ == "__main__":
    main()
