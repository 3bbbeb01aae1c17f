// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Checks what vitepress doesn't: that each link within the site leads to a heading that is there, and
// that the search finds pages by words that people look for.

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import MiniSearch from 'minisearch'

const site = '../../bin/docs'
const base = process.env.BASE || '/'
const pages = new Map()
for (const name of readdirSync(site, { recursive: true })) {
  if (name.endsWith('.html')) pages.set(name, readFileSync(join(site, name), 'utf8'))
}
let dead = 0 // links and searches
for (const [name, html] of pages) {
  for (const [, href] of html.matchAll(/href="([^"]*#[^"]+)"/g)) {
    if (/^[a-z]+:/.test(href)) continue
    const [page, fragment] = href.split('#')
    const path = page.endsWith('/') ? page + 'index.html' : page
    const target = path === '' ? name : path.startsWith(base) ? path.slice(base.length) : normalize(join(dirname(name), path))
    if (pages.get(target)?.includes(`id="${decodeURIComponent(fragment)}"`)) continue
    console.error(`${name}: nothing is at ${href}`)
    dead++
  }
}

const chunks = join(site, 'assets/chunks')
const chunk = readdirSync(chunks).find((name) => name.includes('localSearchIndexroot'))
const { default: index } = await import('data:text/javascript,' + encodeURIComponent(readFileSync(join(chunks, chunk), 'utf8')))
const search = MiniSearch.loadJSON(index, { fields: ['title', 'titles', 'text'], storeFields: ['title', 'titles'] })
for (const [words, page] of [['python', 'go-authors'], ['air gap', 'install'], ['go back', 'install'], ['1219', 'troubleshooting'], ['CSIProxyDown', 'monitoring'], ['must-gather', 'openshift'], ['github actions', 'test-your-driver']]) {
  const first = search.search(words, { fuzzy: 0.2, prefix: true, boost: { title: 4, text: 2, titles: 1 } }).slice(0, 5)
  if (first.some(({ id }) => id.includes(`/${page}.`))) continue
  console.error(`a search for "${words}" doesn't find ${page}.md, but ${first.map(({ id }) => id).join(', ')}`)
  dead++
}
console.log(`${pages.size} pages, ${dead} of their links or searches lead to nothing`)
process.exit(dead > 0 || pages.size === 0 ? 1 : 0)
