module github.com/csi-proxy/csi-proxy/test/dropin

go 1.26.0

require (
	github.com/csi-proxy/csi-proxy v0.0.0
	github.com/kubernetes-csi/csi-proxy/v2 v2.0.0-alpha.1
)

replace (
	github.com/csi-proxy/csi-proxy => ../..
	github.com/kubernetes-csi/csi-proxy/v2 => ../../compat/csi-proxy/v2
)
