# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

"""The life of a volume on a simulated node. CSI_PROXY_BIN has the programs."""

import os
import subprocess
import tempfile
import unittest

from csi_proxy import Error, Storage

BIN = os.environ.get('CSI_PROXY_BIN', '../../../bin')
CTL = os.path.join(BIN, 'csi-proxyctl')
STAGING = r'C:\var\lib\kubelet\plugins\kubernetes.io\csi\disk.example.com\0123\globalmount'
TARGET = r'C:\var\lib\kubelet\pods\4567\volumes\kubernetes.io~csi\pv-1\mount'


class Life(unittest.TestCase):
    def setUp(self):
        node = tempfile.TemporaryDirectory(prefix='csi-proxy-')
        self.addCleanup(node.cleanup)
        self.flag = '--endpoint-dir=' + node.name
        daemon = subprocess.Popen([os.path.join(BIN, 'csi-proxy'), self.flag], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        self.call = Storage(CTL, self.flag).call  # which waits until the daemon serves

    def test_volume(self):
        with self.assertRaises(Error) as missing:
            self.call('stage', STAGING, '--serial=vol-1', '--wait=-1s')
        self.assertEqual(missing.exception.reason, 'NOT_FOUND')

        attach = ['sim', 'disk', 'attach', '--size=10GiB', '--serial=vol-1']
        subprocess.run([CTL, self.flag, *attach], check=True, stdout=subprocess.DEVNULL)
        for again in range(2):  # kubelet repeats calls
            staged = self.call('stage', STAGING, '--serial=vol-1', '--grow')
            self.assertEqual((staged['file_system'], staged['formatted']), ('NTFS', again == 0))
            self.call('publish', STAGING, TARGET)
        volume = self.call('volume', TARGET)
        self.assertEqual(volume['used_bytes'] + volume['free_bytes'], volume['size_bytes'])
        self.assertEqual(volume['conditions'], [])

        with self.assertRaises(Error) as published:
            self.call('unstage', STAGING)
        self.assertEqual(published.exception.reason, 'FAILED_PRECONDITION')
        self.call('unpublish', TARGET)
        self.assertTrue(self.call('unstage', STAGING, '--serial=vol-1')['disk_offline'])


if __name__ == '__main__':
    unittest.main()
