/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * How the C sources here state what the headers of Windows say: as constant data of
 * an object file, from which print.go takes it, so that nothing needs to be run. */

#define INITGUID /* GUIDs of the headers become data too */
#define COBJMACROS
#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00
#endif
#include <stddef.h>
#include <windows.h>

/* A line of layout.txt. */
struct line {
	char text[88];
	unsigned long long number;
};
#define LINES static const struct line lines[] __attribute__((section("lines"), used))

#define SIZE(type) { "size " #type, sizeof(type) }
#define OFFSET(type, field) { "offset " #type "." #field, offsetof(type, field) }
#define VALUE(name) { "value " #name, (unsigned long long)(name) }
/* A value of 32 bits that C takes for negative. */
#define RESULT(name) { "value " #name, (unsigned)(name) }

/* The slot of a method in the table of a COM interface. */
#define SLOT(interface, method) \
	{ "slot " #interface "." #method, offsetof(interface##Vtbl, method) / sizeof(void *) }

/* A structure of which samples.txt has the bytes, in a section of its own, and the
 * line that states how many they are. */
#define SAMPLE(type, name) static const type name __attribute__((section("sample." #name), used))
#define SAMPLED(name) { "sample " #name, sizeof(name) }

/* A GUID that a header defines. */
#define GUID_OF_HEADER(name) { "guid " #name, sizeof(name) }
