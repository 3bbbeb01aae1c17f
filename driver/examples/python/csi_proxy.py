# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

"""CSI Proxy's storage API in a language whose gRPC can't dial a named pipe: by csi-proxyctl, once
for each call. docs/go-authors.md explains it."""

import json
import subprocess
import time


class Error(Exception):
    """A call failed. reason is its class, such as NOT_FOUND; windows_error is None, or Windows' number."""

    def __init__(self, message, reason=None, windows_error=None):
        super().__init__(message)
        self.reason, self.windows_error = reason, windows_error


class Storage:
    """Makes calls: Storage().call('publish', staging_path, target_path)."""

    def __init__(self, program='csi-proxyctl.exe', *flags):
        self.command = [program, '--output', 'json', *flags, 'storage']

    def call(self, *args, seconds=110, secret=None):
        """Makes a call, which has seconds to end. While the daemon is away or busy, it is made again,
        which every call allows. secret goes to its standard input, never among its arguments."""
        deadline, pause = time.monotonic() + seconds, 0.1
        while True:
            left = max(deadline - time.monotonic(), 1)
            command = [*self.command, f'--timeout={left:.0f}s', *args]
            done = subprocess.run(command, capture_output=True, input=secret, encoding='utf-8')
            if done.returncode == 0:
                return json.loads(done.stdout)
            if done.returncode != 6 or time.monotonic() + pause > deadline:  # 6: try again later
                raise failure(done.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 5)


def failure(stderr):
    """The error that csi-proxyctl has printed."""
    error = json.loads(stderr)['error']
    return Error(error['message'], error.get('reason'), error.get('windows_error'))
