"""A fitted classifier as one file, run where there is no abomed: in another process that cannot import it.

    python examples/04_export_and_run_elsewhere.py

With the extra [export] the file is ONNX, which runs in many languages and in a browser; without it a program of
torch.export. From the command line, for a classifier kept by `abomed classify --save FOLDER`:

    abomed export FOLDER --to onnx
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from abomed import FewShotClassifier
from abomed.classify.export import export
from abomed.config.synthetic import SyntheticSettings
from abomed.data.synthetic import write_folder

# All that the other machine needs: pictures of one size as [images, height, width, 3], 8 bits.
ELSEWHERE = """
import json, sys
import numpy as np
from PIL import Image

sys.modules["abomed"] = None  # from here on an import of abomed is an error
model, *files = sys.argv[1:]
pictures = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
if model.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    notes = session.get_modelmeta().custom_metadata_map
    (probabilities,) = session.run(None, {"images": pictures})
else:
    import torch
    notes = {"abomed.json": ""}
    program = torch.export.load(model, extra_files=notes)
    notes = json.loads(notes["abomed.json"])
    probabilities = program.module()(torch.from_numpy(pictures)).numpy()
print(json.dumps({"use": notes["use"], "classes": json.loads(notes["classes"]), "rows": probabilities.tolist()}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        classes = ("mitotic_figures", "vacuolated", "gland_rings")
        settings = SyntheticSettings(size=128, images_per_class=8, groups_per_class=8, classes=classes)
        write_folder(settings, root / "set", workers=1)
        files = {name: sorted((root / "set" / name).iterdir()) for name in classes}
        labelled = [file for name in classes for file in files[name][:5]]
        classifier = FewShotClassifier("untrained:cnn4").fit(labelled, [f.parent.name for f in labelled])

        suffix = ".onnx" if importlib.util.find_spec("onnxscript") else ".pt2"
        written = export(classifier, root / f"classifier{suffix}")
        print(f"{written.path.name}: {written.size / 2**20:.1f} MiB, classes {', '.join(written.classes)}")

        asked = [file for name in classes for file in files[name][5:]]
        command = [sys.executable, "-c", ELSEWHERE, str(written.path), *map(str, asked)]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        here, there = classifier.predict_proba(asked), np.array(answer["rows"])
        print(f"elsewhere: {answer['use']}")
        for file, row in zip(asked[::3], there[::3], strict=True):
            print(f"  {file.parent.name:<16} answered {answer['classes'][row.argmax()]:<16} {row.max():.3f}")
        print(f"largest difference between here and there: {np.abs(here - there).max():.1e}")

        # Pictures of another size are resized inside the file.
        large = Image.open(asked[0]).resize((300, 200))
        large.save(root / "large.png")
        command = [sys.executable, "-c", ELSEWHERE, str(written.path), str(root / "large.png")]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        here = classifier.predict_proba([root / "large.png"])
        print(f"and for a picture of 300 x 200: {np.abs(here - np.array(answer['rows'])).max():.1e}")


if __name__ == "__main__":
    main()
