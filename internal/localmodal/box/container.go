package box

import (
	"bytes"
	"os"
	"strings"
)

// initialPIDNamespace is the kernel's name for its initial PID namespace (PROC_PID_INIT_INO). No
// container is in it, unless it is configured to share it.
const initialPIDNamespace = "pid:[4026531836]"

// detectContainer returns the kind of container that this process is in, empty if none. It requires
// both a sign and a PID namespace: a machine may have been made from an image that contains the
// sign, and a person may have created a PID namespace.
func detectContainer() string {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns == initialPIDNamespace {
		return ""
	}
	return containerSign()
}

func containerSign() string {
	for _, sign := range []struct{ path, name string }{{"/.dockerenv", "docker"}, {"/run/.containerenv", "podman"}} {
		if _, err := os.Stat(sign.path); err == nil {
			return sign.name
		}
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return "kubernetes"
	}
	if b, err := os.ReadFile("/run/systemd/container"); err == nil {
		return strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/1/environ"); err == nil {
		for pair := range bytes.SplitSeq(b, []byte{0}) {
			if name, ok := bytes.CutPrefix(pair, []byte("container=")); ok && len(name) > 0 {
				return string(name)
			}
		}
	}
	return ""
}
