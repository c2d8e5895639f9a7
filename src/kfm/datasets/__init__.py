"""The life of datasets: completeness, rollback, withdrawal, derived datasets."""
