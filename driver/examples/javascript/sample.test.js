// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// The life of a volume by the storage API, on a simulated node. CSI_PROXY_BIN has the programs.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import grpc from '@grpc/grpc-js'

import { connect, endpoint } from './csi-proxy.js'

const bin = process.env.CSI_PROXY_BIN ?? '../../../bin'
const dir = mkdtempSync(join(tmpdir(), 'csi-proxy-'))
let daemon, call

before(() => {
  daemon = spawn(join(bin, 'csi-proxy'), ['-endpoint-dir', dir], { stdio: 'ignore' })
  call = connect(endpoint(dir)) // which waits until the daemon serves
})

after(() => {
  call.close()
  daemon.kill()
  rmSync(dir, { recursive: true })
})

test('mistakes in requests', async () => {
  for (const [request, text] of [
    [{ stagingPath: 'x' }, 'StageVolumeRequest has no field stagingPath; did you mean staging_path?'],
    [{ disk: { serial: 'vol-1' } }, 'DiskSelector has no field serial'],
    [{ disk: { number: { value: 99 } } }, 'DiskSelector.number is an object, not a uint32']
  ]) {
    await assert.rejects(call('StageVolume', request), { name: 'TypeError', message: text })
  }
})

const cloud = (...args) => execFileSync(join(bin, 'csi-proxyctl'), ['--endpoint-dir', dir, 'sim', ...args])

test('the life of a volume', async () => {
  const staging_path = 'C:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\csi\\disk.example.com\\0123\\globalmount'
  const target_path = 'C:\\var\\lib\\kubelet\\pods\\4567\\volumes\\kubernetes.io~csi\\pv-1\\mount'
  const disk = { serial_number: 'vol-1' }

  await assert.rejects(call('StageVolume', { disk, staging_path, wait_milliseconds: -1 }), (err) => {
    assert.equal(err.code, grpc.status.NOT_FOUND)
    assert.equal(err.reason, 'NOT_FOUND')
    assert.equal(err.info.operation, 'StageVolume')
    return true
  })

  cloud('disk', 'attach', '--size', '10GiB', '--serial', 'vol-1')
  for (let again = 0; again < 2; again++) { // kubelet repeats calls
    const staged = await call('StageVolume', { disk, staging_path, grow: true })
    assert.equal(staged.file_system, 'NTFS')
    assert.equal(staged.formatted, again === 0)
    await call('PublishVolume', { staging_path, target_path })
  }
  const { volume } = await call('GetVolume', { path: target_path })
  assert.equal(volume.used_bytes + volume.free_bytes, volume.size_bytes)
  assert.deepEqual(volume.conditions, [])

  await assert.rejects(call('UnstageVolume', { staging_path }), { code: grpc.status.FAILED_PRECONDITION })
  await call('UnpublishVolume', { target_path })
  assert.equal((await call('UnstageVolume', { staging_path, disk })).disk_offline, true)
})
