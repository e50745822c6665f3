//go:build tools

// Package tools names what is built here, so that go.mod and go.sum hold all that it takes.
package tools

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
