"""For the tests of code that uses kfm. `kfm.testing.plugin` is loaded by pytest by itself."""
