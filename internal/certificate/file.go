package certificate

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"

	"weir/internal/disk"
)

// Secret returns the 32 random bytes in a file. If the file does not exist, Secret creates it with
// new bytes and mode 0600. It never replaces a file of the wrong size.
func Secret(path string) (*[32]byte, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		b = make([]byte, 32)
		rand.Read(b)
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = disk.Replace(path, b, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(b) != 32 {
		return nil, fmt.Errorf("read secret %s: it is %d bytes, want 32; remove it to create a new one", path, len(b))
	}
	return (*[32]byte)(b), nil
}

// newSerial returns a random serial number of 127 bits. There is no record of the serial numbers of
// earlier certificates, and random numbers of this size do not collide with them.
func newSerial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // positive, and always 16 bytes long
	return new(big.Int).SetBytes(b)
}

func within(ranges []*net.IPNet, ip net.IP) bool {
	for _, r := range ranges {
		if r.Contains(ip) {
			return true
		}
	}
	return false
}

// alone returns the range that contains only ip.
func alone(ip net.IP) *net.IPNet {
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))}
}
