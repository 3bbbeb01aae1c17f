// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// CSI Proxy's storage API in JavaScript: how to connect, to call with a deadline, to try again, and
// to read an error. docs/go-authors.md explains it.

import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import protobuf from 'protobufjs'

// A copy of storage.proto beside this file comes first; without one, this file is in CSI Proxy's repository.
const proto = ['./storage.proto', '../../../api/storage/v1alpha1/storage.proto']
  .map((path) => fileURLToPath(new URL(path, import.meta.url))).find(existsSync)
if (!proto) throw new Error('storage.proto is missing: copy it from api/storage/v1alpha1 of CSI Proxy beside csi-proxy.js')
const { Storage } = grpc.loadPackageDefinition(loadSync(proto, { keepCase: true, longs: Number, defaults: true }))
  .csiproxy.storage.v1alpha1
const messages = protobuf.parse(readFileSync(proto, 'utf8'), { keepCase: true }).root.lookup('csiproxy.storage.v1alpha1')

// endpoint is the address of the group. On Windows grpc-js takes the path of a pipe for that of a
// socket. Elsewhere the daemon runs on a simulated node, with its sockets in a directory.
export function endpoint(dir) {
  const name = 'csi-proxy-storage-v1alpha1'
  if (process.platform !== 'win32' && !dir) throw new TypeError('endpoint needs the directory of the sockets')
  return process.platform === 'win32' ? `unix:////./pipe/${name}` : `unix:${dir}/${name}.sock`
}

// check throws a TypeError for what protobufjs leaves out of a message or sends as 0 without a word:
// fields with unknown names, such as stagingPath, and objects in place of numbers and texts.
function check(type, message) {
  for (const [name, value] of Object.entries(message)) {
    const field = type.fields[name]
    const snake = name.replace(/[A-Z]/g, (letter) => '_' + letter.toLowerCase())
    if (!field) throw new TypeError(`${type.name} has no field ${name}` + (snake in type.fields ? `; did you mean ${snake}?` : ''))
    for (const one of field.resolve().repeated ? value : [value]) {
      if (field.resolvedType instanceof protobuf.Type) check(field.resolvedType, one ?? {})
      else if (one !== null && typeof one === 'object') throw new TypeError(`${type.name}.${name} is an object, not a ${field.type}`)
    }
  }
}

// connect returns a function that makes a call: await call('ListDisks', {}). A call has seconds to
// end. While the daemon is away or busy, it is made again, with a warning: every call may be repeated.
export function connect(address) {
  const client = new Storage(address, grpc.credentials.createInsecure())
  const once = (method, request, deadline) => new Promise((resolve, reject) => {
    client[method](request, { deadline }, (err, response) => (err ? reject(describe(err)) : resolve(response)))
  })
  const call = async (method, request, seconds = 110) => {
    check(messages.lookupType(`${method}Request`), request)
    const deadline = Date.now() + seconds * 1000
    for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
      try {
        return await once(method, request, deadline)
      } catch (err) {
        if (err.code !== grpc.status.UNAVAILABLE || Date.now() + pause > deadline) throw err
        console.warn(`${method}: ${err.details}; again in ${pause} ms`)
        await sleep(pause)
      }
    }
  }
  call.close = () => client.close()
  return call
}

// The details of a gRPC status: google.rpc.Status, with an ErrorInfo in it.
const status = protobuf.parse(`syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }`).root

// describe adds to an error what the daemon tells of it for programs: the reason, such as
// NOT_FOUND, and in metadata the operation, its object, and the number of the Windows error.
function describe(err) {
  const [bytes] = err.metadata?.get('grpc-status-details-bin') ?? []
  for (const { typeUrl, value } of bytes ? status.lookupType('Status').decode(bytes).details : []) {
    if (!typeUrl.endsWith('/google.rpc.ErrorInfo')) continue
    const { reason, domain, metadata } = status.lookupType('ErrorInfo').decode(value)
    if (domain === 'csi-proxy') Object.assign(err, { reason, info: metadata })
  }
  return err
}
