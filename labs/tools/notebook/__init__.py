"""`labs notebook`: JupyterLab on working copies of the notebooks."""
