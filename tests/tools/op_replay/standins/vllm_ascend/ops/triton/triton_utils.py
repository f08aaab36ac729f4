"""The call without which Triton kernels do not start."""

initialised = False


def init_device_properties_triton():
    global initialised
    initialised = True
