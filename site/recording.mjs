// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Records a run of a program as a picture that moves: `make recording` records `make run`.
//
//	node recording.mjs TITLE PROGRAM [ARGUMENT…] >picture.svg
//
// Each line of the output appears as long after the one before as in the run, times the
// factor below. Readers that ask for reduced motion see all lines at once.

import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const slower = 15 // a run takes less than a second
const columns = 116
const [title, program, ...args] = process.argv.slice(2)

const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
const start = performance.now()
const lines = [{ text: `$ ${title}`, seconds: 0 }]
for await (const text of createInterface({ input: child.stdout })) {
  const seconds = 0.5 + (slower * (performance.now() - start)) / 1000
  for (let rest = text, indent = ''; ; indent = ' '.repeat(12)) {
    const room = columns - indent.length
    if (rest.length <= room) {
      lines.push({ text: indent + rest, seconds })
      break
    }
    const end = rest.lastIndexOf(' ', room) > 30 ? rest.lastIndexOf(' ', room) : room
    lines.push({ text: indent + rest.slice(0, end), seconds })
    rest = rest.slice(end).trimStart()
  }
}
const code = await new Promise((resolve) => (child.exitCode === null ? child.on('exit', resolve) : resolve(child.exitCode)))
if (code !== 0) throw new Error(`${program} ends with ${code}`)

const escape = (s) => s.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
const height = 18
const picture = [
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${columns * 7.3 + 32} ${lines.length * height + 32}" role="img" aria-label="the output of ${escape(title)}">`,
  '<!-- Made by site/recording.mjs from a run. Copyright The CSI Proxy Authors. SPDX-License-Identifier: Apache-2.0 -->',
  '<style>',
  "text { font: 12px 'DejaVu Sans Mono', Consolas, monospace; fill: #d7deea; white-space: pre }",
  '.head { fill: #8fd0ff; font-weight: bold } .end { fill: #9be28f }',
  '@media (prefers-reduced-motion: no-preference) { text { opacity: 0; animation: appear 0.2s forwards } }',
  '@keyframes appear { to { opacity: 1 } }',
  '</style>',
  '<rect width="100%" height="100%" rx="8" fill="#16202e"/>',
  ...lines.map(({ text, seconds }, i) => {
    const kind = /^All went/.test(text) ? ' class="end"' : /^\S/.test(text) ? ' class="head"' : ''
    return `<text x="16" y="${i * height + 28}"${kind} style="animation-delay:${seconds.toFixed(2)}s">${escape(text)}</text>`
  }),
  '</svg>'
]
console.log(picture.join('\n'))
