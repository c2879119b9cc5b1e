package box

import (
	"bytes"
	"os"
	"strings"
)

// initialPIDNamespace is the kernel's name for the one that it starts with (PROC_PID_INIT_INO): no
// container has it, unless it is configured to share it.
const initialPIDNamespace = "pid:[4026531836]"

// detectContainer returns what kind of container this process is in, empty outside. It takes a sign
// and a PID namespace: a machine may have been made from an image, and have the sign by that, and a
// person may have created a PID namespace.
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
