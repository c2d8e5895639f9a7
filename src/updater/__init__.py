"""The updater under its documented names: thin modules over `kfm`.

It is a module of the distribution kfm-kernel. The distribution called `updater` on the public package index
is another project; `kfm doctor` says so if it is installed here and shadows this one.
"""
