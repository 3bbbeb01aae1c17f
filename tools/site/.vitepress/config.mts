// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0
//
// The site of the documentation: the pages of docs/, as they are, with a search. `make docs`
// builds it. Its menu is docs/index.md, which lists all pages.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig, type MarkdownRenderer } from 'vitepress'

type StateCore = Parameters<Parameters<MarkdownRenderer['core']['ruler']['push']>[1]>[0]

const repository = resolve(dirname(fileURLToPath(import.meta.url)), '../../..')
const docs = join(repository, 'docs')
const source = 'https://github.com/csi-proxy/csi-proxy'

// The version that the pages are of: git's name for it, as in the programs.
const version = process.env.VERSION || 'main'

// The path of the site at its server, which ends with a slash.
const base = process.env.BASE || '/'

// titleOf returns the first heading of a page.
function titleOf(file: string) {
  const title = readFileSync(file, 'utf8').match(/^# (.+)$/m)
  if (!title) throw new Error(`${file} has no heading`)
  return title[1].replaceAll('`', '')
}

// anchorOf is the name of a heading in links, by GitHub's rule, which the pages follow.
const anchorOf = (heading: string) => heading.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}_ -]/gu, '').replaceAll(' ', '-')

// A page and a table of as many characters or more are long: on a phone about ten screens, and one.
const longPage = 12000
const longTable = 900

function html(state: StateCore, text: string) {
  const token = new state.Token('html_block', '', 0)
  token.content = text
  return token
}

// The menu: a group for each heading of the index whose table lists pages, an item for each of its rows.
// The title of a page is its first heading.
function menu() {
  const groups: { text: string; items: { text: string; link: string }[] }[] = []
  const listed = new Set(['index.md'])
  for (const line of readFileSync(join(docs, 'index.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.+)$/)
    if (heading) groups.push({ text: heading[1], items: [] })
    const page = line.match(/^- \[[^\]]+\]\(([^)]+\.md)\)/)
    if (!page) continue
    listed.add(page[1])
    groups[groups.length - 1].items.push({ text: titleOf(join(docs, page[1])), link: '/' + page[1].replace(/\.md$/, '') })
  }
  for (const entry of readdirSync(docs, { recursive: true, encoding: 'utf8' })) {
    if (entry.endsWith('.md') && !listed.has(entry)) throw new Error(`docs/index.md doesn't list ${entry}`)
  }
  return groups.filter((group) => group.items.length > 0)
}

export default defineConfig({
  title: 'CSI Proxy',
  description: 'The storage operations of a Windows node, for CSI drivers',
  base,
  srcDir: '../../docs',
  outDir: '../../bin/docs',
  cacheDir: '../../bin/.docs-cache',
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: 'data:image/svg+xml,' + encodeURIComponent(
    readFileSync(join(repository, 'deploy/charts/csi-proxy/icon.svg'), 'utf8')) }]],
  cleanUrls: false,
  lastUpdated: false,
  // The pages lie outside of the directory with the modules.
  vite: { resolve: { alias: { vue: join(repository, 'tools/site/node_modules/vue') } } },
  markdown: {
    anchor: { slugify: anchorOf },
    config: (md) => {
      // Vue removes a line break between two elements, such as bold words and a link.
      md.renderer.rules.softbreak = () => ' '
      // On the site, a link to a file of the repository leads to the repository; and one whose text
      // is the name of a page has the page's title.
      md.core.ruler.push('repository-links', (state) => {
        const tokens = state.tokens.flatMap((t) => t.children ?? [])
        for (const [i, token] of tokens.entries()) {
          const href = token.attrGet('href')
          if (token.type !== 'link_open' || !href || /^[a-z]+:|^#/.test(href)) continue
          const [path, fragment] = href.split('#')
          const file = resolve(dirname(state.env.path ?? join(docs, 'index.md')), path)
          if (!existsSync(file)) throw new Error(`${state.env.relativePath}: a link to ${path}, which doesn't exist`)
          if (!relative(docs, file).startsWith('..')) {
            const text = tokens[i + 1]
            if (text.type === 'text' && text.content === basename(path)) text.content = `“${titleOf(file)}”`
            continue
          }
          token.attrSet('href', `${source}/blob/main/${relative(repository, file)}${fragment ? '#' + fragment : ''}`)
        }
      })
      // On a phone, where style.css stacks the cells of a row, a cell has the name of its column. In a
      // table of two columns it needs none.
      md.core.ruler.push('cell-labels', (state) => {
        let labels: string[] = [], column = 0
        for (const [i, token] of state.tokens.entries()) {
          if (token.type === 'thead_open') labels = []
          if (token.type === 'tr_open') column = 0
          if (token.type === 'th_open') labels.push(state.tokens[i + 1].content.replace(/`|\[|\]\(.*?\)/g, ''))
          if (token.type !== 'td_open') continue
          if (labels.length > 2 && column > 0 && labels[column]) token.attrSet('data-label', labels[column])
          column++
        }
      })
      // A long table of a long page is folded on a phone. style.css keeps it open elsewhere.
      md.core.ruler.push('long-tables', (state) => {
        if (state.src.length < longPage) return
        const tokens: typeof state.tokens = []
        let table: typeof state.tokens = []
        for (const token of state.tokens) {
          if (token.type !== 'table_open' && table.length === 0) {
            tokens.push(token)
            continue
          }
          table.push(token)
          if (token.type !== 'table_close') continue
          const cells = table.filter((t) => t.type === 'inline')
          const isLong = cells.reduce((sum, cell) => sum + cell.content.length, 0) > longTable
          if (isLong) {
            const head = table.findIndex((t) => t.type === 'thead_close')
            const columns = table.slice(0, head).filter((t) => t.type === 'inline').map((t) => t.content).join(', ')
            const rows = table.slice(head).filter((t) => t.type === 'tr_open').length
            tokens.push(html(state, `<details class="long-table"><summary>${md.utils.escapeHtml(`${rows} rows: ${columns}`)}</summary>\n`))
          }
          tokens.push(...table)
          if (isLong) tokens.push(html(state, '</details>\n'))
          table = []
        }
        state.tokens = tokens
      })
    }
  },
  themeConfig: {
    search: { provider: 'local' },
    sidebar: menu(),
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: source }],
    editLink: { pattern: `${source}/edit/main/docs/:path`, text: 'Propose a change of this page' },
    nav: [{ text: version, items: [
      { text: 'Changes', link: `${source}/blob/main/CHANGELOG.md` },
      { text: 'Releases, each with its pages', link: `${source}/releases` }
    ] }],
    footer: { message: 'Apache License 2.0' }
  }
})
