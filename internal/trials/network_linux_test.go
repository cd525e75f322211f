package trials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/contract"
)

// network is a set of simulated machines that can be cut off from each other. Each machine is a
// network namespace with its own address, and a bridge in another namespace joins them. The network
// of the real machine is not involved, and the kernel removes everything when the processes that
// use it exit.
//
// To cut a link, the test gives the sender a wrong hardware address for the receiver, one that no
// machine has. The bridge then drops the sender's packets silently, as a broken network does. Each
// direction can be cut separately.
type network struct {
	t        testing.TB
	spaces   []*os.File     // namespace of each machine
	lives    map[string]int // for each address of a node, the index of the machine on which the node runs
	operator map[int]string // for each node, the address in its flag --metrics
}

// newNetwork creates machines. It skips the test if the required permissions or tools are missing.
func newNetwork(t testing.TB, machines int) *network {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the command ip (iproute2)")
	}
	n := &network{t: t, lives: map[string]int{}, operator: map[int]string{}}
	bridge := n.space()
	err := ip(bridge, "link add joint type bridge", "link set joint up")
	for i := range machines {
		s := n.space()
		n.spaces = append(n.spaces, s)
		err = errors.Join(err, ip(bridge, fmt.Sprintf("link add port%d type veth peer name wire netns /proc/%d/fd/%d", i, os.Getpid(), s.Fd()),
			fmt.Sprintf("link set port%d master joint", i), fmt.Sprintf("link set port%d up", i)))
		err = errors.Join(err, ip(s, "link set lo up", "link set wire address "+hardware(i), "addr add "+machine(i)+"/24 dev wire", "link set wire up"))
	}
	if err != nil {
		t.Skipf("cannot create bridges and veth pairs: %v", err)
	}
	n.heal()
	return n
}

// machine returns the IP address of a machine.
func machine(i int) string { return fmt.Sprint("10.0.0.", i+1) }

// hardware returns the hardware address of a machine.
func hardware(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i+1) }

// unusedAddress is a hardware address that no machine has.
const unusedAddress = "02:00:00:00:00:ff"

// space creates a namespace. It exists as long as a process has it open or runs in it.
func (n *network) space() *os.File {
	n.t.Helper()
	var made *os.File
	err := switchNamespace(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		made, err = os.Open(currentNamespace)
		return err
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		n.t.Skipf("network namespaces need root and kernel support: %v", err)
	}
	if err != nil {
		n.t.Fatalf("create a network namespace: %v", err)
	}
	n.t.Cleanup(func() { made.Close() })
	return made
}

// currentNamespace is the file of the network namespace that the calling thread is in.
const currentNamespace = "/proc/thread-self/ns/net"

// switchNamespace calls the function leave, which moves the current thread to another namespace.
// Then it calls the function do and moves the thread back. Sockets and processes that the function
// do creates stay in the other namespace.
func switchNamespace(leave, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(currentNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := leave(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprint("cannot move a thread back to its network namespace: ", err)) // other code must not run on this thread
		}
		runtime.UnlockOSThread()
	}()
	return do()
}

// inNamespace calls the function do in a namespace.
func inNamespace(space *os.File, do func() error) error {
	return switchNamespace(func() error { return unix.Setns(int(space.Fd()), unix.CLONE_NEWNET) }, do)
}

// ip runs the ip command in a namespace. Each line holds the arguments of one call.
func ip(space *os.File, lines ...string) error {
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	return inNamespace(space, func() error {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
}

// link is the connection from one machine to another, in this direction only.
type link struct{ from, to int }

// cut cuts these links and restores all others.
func (n *network) cut(links ...link) {
	n.t.Helper()
	lost := map[link]bool{}
	for _, w := range links {
		lost[w] = true
	}
	for from := range n.spaces {
		var lines []string
		for to := range n.spaces {
			if from == to {
				continue
			}
			at := hardware(to)
			if lost[link{from, to}] {
				at = unusedAddress
			}
			lines = append(lines, fmt.Sprintf("neigh replace %s lladdr %s dev wire nud permanent", machine(to), at))
		}
		if err := ip(n.spaces[from], lines...); err != nil {
			n.t.Fatal(err)
		}
	}
}

// heal restores all links.
func (n *network) heal() { n.t.Helper(); n.cut() }

// place makes the nodes of a cluster run on these machines. Nodes reach each other over the
// network, and clients reach each node on the loopback of its machine, which is never cut.
func (n *network) place(c *cluster) {
	n.t.Helper()
	var moved []string
	for i, command := range c.commands {
		for j, flag := range command {
			switch flag {
			case "--cluster-listen":
				_, port, err := net.SplitHostPort(command[j+1])
				if err != nil {
					n.t.Fatal(err)
				}
				moved = append(moved, command[j+1], net.JoinHostPort(machine(i), port))
			case "--metrics":
				n.operator[i] = command[j+1]
				fallthrough
			case "--http":
				n.lives[command[j+1]] = i
			}
		}
	}
	for i := range c.commands {
		for j, arg := range c.commands[i] {
			c.commands[i][j] = strings.NewReplacer(moved...).Replace(arg)
		}
	}
	c.inside = func(node int, do func()) {
		if err := inNamespace(n.spaces[node], func() error { do(); return nil }); err != nil {
			n.t.Errorf("enter a network namespace: %v", err)
		}
	}
	c.t.Cleanup(n.heal) // runs before the nodes are stopped
}

// client returns a client that reaches every node on the loopback of its machine.
func (n *network) client() *http.Client {
	c := contract.HTTP1()
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		node, ok := n.lives[address]
		if !ok {
			return nil, fmt.Errorf("no node has the address %s", address)
		}
		err = inNamespace(n.spaces[node], func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return c
}
