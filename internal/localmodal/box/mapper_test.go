package box

import (
	"bufio"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapperFile names the file that the test binary, run inside a box, changes
// through a shared mapping.
const mapperFile = "BOX_TEST_MAPPER_FILE"

// runMapper stores each line of its input at the start of the mapping and confirms it.
func runMapper(path string) int {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		copy(memory, lines.Text())
		fmt.Fprintln(os.Stdout, "stored")
	}
	return 0
}
