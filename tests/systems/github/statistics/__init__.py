# ruff: noqa: A005 - nobody imports it as a top-level module
