package certificate

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
)

// replace writes a file whole or not at all.
func replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Secret reads the 32 random bytes of a file, which is made, for nobody else to read, when it is not there.
func Secret(path string) (*[32]byte, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		b = make([]byte, 32)
		rand.Read(b)
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = replace(path, b, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(b) != 32 {
		return nil, fmt.Errorf("%s has %d bytes, not 32: remove it, and a new one is made", path, len(b))
	}
	return (*[32]byte)(b), nil
}

// newSerial is a random number of 127 bits, as authorities use.
func newSerial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // positive, and always as long
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

// alone is the range of one address.
func alone(ip net.IP) *net.IPNet {
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))}
}
