"""How data sets are called in print."""

NAMES = {
    "pap-smear": "Pap-smear",
    "isic2018": "ISIC 2018",
    "breakhis400": "BreaKHis 400X",
    "bchi": "BCHI",
    "synthetic": "synthetic",
}
