// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Draws the ratios of docs/why.md: `npm run plots` writes docs/images/performance.svg.
// A ratio is one number, or a range such as "1.13 to 1.21".

import { readFileSync, writeFileSync } from 'node:fs'
import * as vega from 'vega'
import { compile } from 'vega-lite'

const docs = new URL('../docs/', import.meta.url)
const page = readFileSync(new URL('why.md', docs), 'utf8')
const table = page.slice(page.indexOf('## Beside the published daemon')).split('\n').filter((line) => line.startsWith('| ')).map((line) => line.split('|').map((cell) => cell.trim()))
const column = table[0].indexOf('ratio')
const rows = []
for (const row of table.slice(1)) {
  const numbers = row[column]?.match(/\d+\.\d+/g)?.map(Number)
  if (numbers) rows.push({ what: row[1], low: Math.min(...numbers), high: Math.max(...numbers) })
}
if (rows.length < 4) throw new Error(`docs/why.md has ${rows.length} ratios`)

const spec = {
  $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
  title: { text: 'CSI Proxy beside the published daemon, under Wine', subtitle: 'ratio of ours to theirs in the same run; below 1 is better', anchor: 'start' },
  width: 420,
  height: { step: 34 },
  background: '#f8fafc',
  padding: 16,
  data: { values: rows },
  encoding: { y: { field: 'what', type: 'nominal', sort: null, axis: { title: null, labelLimit: 0 } } },
  layer: [
    { mark: { type: 'bar', height: 10, cornerRadius: 5, color: '#2f5fb3' }, encoding: { x: { field: 'low', type: 'quantitative', title: 'ratio', scale: { domain: [0, 1.8] } }, x2: { field: 'high' } } },
    { mark: { type: 'point', filled: true, size: 90, color: '#2f5fb3', opacity: 1 }, encoding: { x: { field: 'low', type: 'quantitative' } } },
    { data: { values: [{ one: 1 }] }, mark: { type: 'rule', color: '#b3402f', strokeDash: [6, 4] }, encoding: { x: { field: 'one', type: 'quantitative' }, y: null } }
  ],
  config: { font: 'DejaVu Sans, sans-serif', axis: { labelFontSize: 12, titleFontSize: 12 }, title: { fontSize: 14, subtitleFontSize: 12 }, view: { stroke: null } }
}
const view = new vega.View(vega.parse(compile(spec).spec), { renderer: 'none' })
writeFileSync(new URL('images/performance.svg', docs), (await view.toSVG()) + '\n')
