// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem

// CreateSymlinkRequest is what CreateSymlink takes.
type CreateSymlinkRequest struct {
	SourcePath string
	TargetPath string
}

// CreateSymlinkResponse is what CreateSymlink returns.
type CreateSymlinkResponse struct{}

// IsSymlinkRequest is what IsSymlink takes.
type IsSymlinkRequest struct {
	Path string
}

// IsSymlinkResponse is what IsSymlink returns.
type IsSymlinkResponse struct {
	IsSymlink bool
}

// MkdirRequest is what Mkdir takes.
type MkdirRequest struct {
	Path string
}

// MkdirResponse is what Mkdir returns.
type MkdirResponse struct{}

// PathExistsRequest is what PathExists takes.
type PathExistsRequest struct {
	Path string
}

// PathExistsResponse is what PathExists returns.
type PathExistsResponse struct {
	Exists bool
}

// PathValidRequest is what PathValid takes.
type PathValidRequest struct {
	Path string
}

// PathValidResponse is what PathValid returns.
type PathValidResponse struct {
	Valid bool
}

// RmdirContentsRequest is what RmdirContents takes.
type RmdirContentsRequest struct {
	Path string
}

// RmdirContentsResponse is what RmdirContents returns.
type RmdirContentsResponse struct{}

// RmdirRequest is what Rmdir takes.
type RmdirRequest struct {
	Path  string
	Force bool
}

// RmdirResponse is what Rmdir returns.
type RmdirResponse struct{}
