// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem

// What the methods take and return.
type (
	CreateSymlinkRequest  struct{ SourcePath, TargetPath string }
	CreateSymlinkResponse struct{}
	IsSymlinkRequest      struct{ Path string }
	IsSymlinkResponse     struct{ IsSymlink bool }
	MkdirRequest          struct{ Path string }
	MkdirResponse         struct{}
	PathExistsRequest     struct{ Path string }
	PathExistsResponse    struct{ Exists bool }
	PathValidRequest      struct{ Path string }
	PathValidResponse     struct{ Valid bool }
	RmdirContentsRequest  struct{ Path string }
	RmdirContentsResponse struct{}
	RmdirRequest          struct {
		Path  string
		Force bool
	}
	RmdirResponse struct{}
)
