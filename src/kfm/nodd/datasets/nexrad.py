"""What NEXRAD's datasets have in common: sites, and where some of them stand."""

from __future__ import annotations

from kfm.nodd.catalogue.geometry import Footprint
from kfm.nodd.patterns import Fields, need
from kfm.nodd.spans import Span

SITE = {"site": r"[A-Z][A-Z0-9]{3}"}
# Longitude and latitude to a hundredth of a degree, of the radars of Kansas and around, and of others
# that are often met. A site that is not listed gets no geometry; the volume header has it.
SITES = {
    "KAMA": (-101.71, 35.23),
    "KAMX": (-80.41, 25.61),
    "KCLE": (-81.86, 41.41),
    "KDDC": (-99.97, 37.76),
    "KDFX": (-100.28, 29.27),
    "KEAX": (-94.26, 38.81),
    "KFCX": (-80.27, 37.02),
    "KFTG": (-104.55, 39.79),
    "KFWS": (-97.30, 32.57),
    "KGLD": (-101.70, 39.37),
    "KHGX": (-95.08, 29.47),
    "KICT": (-97.44, 37.65),
    "KINX": (-95.56, 36.18),
    "KLNX": (-100.58, 41.96),
    "KLOT": (-88.08, 41.60),
    "KLSX": (-90.68, 38.70),
    "KMKX": (-88.55, 42.97),
    "KOAX": (-96.37, 41.32),
    "KOKX": (-72.86, 40.87),
    "KPUX": (-104.18, 38.46),
    "KSGF": (-93.40, 37.24),
    "KTLX": (-97.28, 35.33),
    "KTWX": (-96.23, 39.00),
    "KUEX": (-98.44, 40.32),
    "KVNX": (-98.13, 36.74),
}


def site_footprint(fields: Fields, _platform: str | None, _span: Span) -> Footprint | None:
    """Level III drops the K of sites in the contiguous states."""
    site = need(fields, "site")
    point = SITES.get(site if len(site) == 4 else f"K{site}")
    return Footprint(basis="the radar's site", point=point) if point else None
