// Says of a program of macOS or Windows, which nothing here can run, what its own headers say: for which machine it is, from which
// version of the system on it runs, and what it needs of it. Of a program for macOS it also checks the signature: without a valid one,
// a Mac with Apple's processor refuses to start it.
//
//	formats FILE     one line, such as
//	                 macos arm64 11.0 signed /usr/lib/libSystem.B.dylib
//	                 windows amd64 6.0 console kernel32.dll ntdll.dll
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "formats FILE")
		os.Exit(2)
	}
	line, err := describe(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "formats: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	fmt.Println(line)
}

func describe(path string) (string, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if bytes.HasPrefix(file, []byte("MZ")) {
		return windows(file)
	}
	return macOS(file)
}

func windows(file []byte) (string, error) {
	program, err := pe.NewFile(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	header, ok := program.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return "", errors.New("it is not a program for 64 bits")
	}
	machines := map[uint16]string{pe.IMAGE_FILE_MACHINE_AMD64: "amd64", pe.IMAGE_FILE_MACHINE_ARM64: "arm64"}
	if header.Subsystem != pe.IMAGE_SUBSYSTEM_WINDOWS_CUI {
		return "", fmt.Errorf("its subsystem is %d, not the console", header.Subsystem)
	}
	// Each is function:library.
	imported, err := program.ImportedSymbols()
	if err != nil {
		return "", err
	}
	var libraries []string
	for _, symbol := range imported {
		_, library, _ := strings.Cut(symbol, ":")
		libraries = append(libraries, strings.ToLower(library))
	}
	version := fmt.Sprintf("%d.%d", header.MajorSubsystemVersion, header.MinorSubsystemVersion)
	return line("windows", machines[program.Machine], version, "console", libraries), nil
}

func macOS(file []byte) (string, error) {
	program, err := macho.NewFile(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	if program.Type != macho.TypeExec {
		return "", fmt.Errorf("it is no program: %v", program.Type)
	}
	machines := map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}
	libraries, err := program.ImportedLibraries()
	if err != nil {
		return "", err
	}
	// Of <mach-o/loader.h>.
	const codeSignature, minimum, build, onMacOS = 0x1d, 0x24, 0x32, 1
	version, signed := "-", "unsigned"
	for _, load := range program.Loads {
		raw := load.Raw()
		word := func(at int) uint32 { return program.ByteOrder.Uint32(raw[4*at:]) }
		written := func(packed uint32) string { return fmt.Sprintf("%d.%d", packed>>16, packed>>8&0xff) }
		switch word(0) {
		case codeSignature:
			if err := verify(file, file[word(2):word(2)+word(3)]); err != nil {
				return "", err
			}
			signed = "signed"
		case minimum:
			version = written(word(2))
		case build:
			if word(2) != onMacOS {
				return "", fmt.Errorf("it is for Apple's platform %d, not for macOS", word(2))
			}
			version = written(word(3))
		}
	}
	return line("macos", machines[program.Cpu], version, signed, libraries), nil
}

// verify compares the hash of each page with the one that the signature has: see <kern/cs_blobs.h>.
func verify(file, signature []byte) error {
	const superBlob, codeDirectory, bySHA256 = 0xfade0cc0, 0xfade0c02, 2
	big := binary.BigEndian.Uint32
	if big(signature) != superBlob {
		return errors.New("its signature is of an unknown kind")
	}
	for blob := range big(signature[8:]) {
		directory := signature[big(signature[12+8*blob+4:]):]
		if big(directory) != codeDirectory {
			continue
		}
		hashes, pages, limit := big(directory[16:]), big(directory[28:]), big(directory[32:])
		if directory[36] != sha256.Size || directory[37] != bySHA256 {
			return errors.New("its signature has other hashes than SHA-256")
		}
		size := uint32(1) << directory[39]
		if limit != (pages-1)*size+(limit-1)%size+1 {
			return fmt.Errorf("its signature has hashes of %d pages for %d bytes", pages, limit)
		}
		for page := range pages {
			sum := sha256.Sum256(file[page*size : min(page*size+size, limit)])
			if !bytes.Equal(sum[:], directory[hashes+page*sha256.Size:][:sha256.Size]) {
				return fmt.Errorf("its signature does not fit page %d", page)
			}
		}
		return nil
	}
	return errors.New("its signature has no hashes")
}

func line(system, machine, version, state string, libraries []string) string {
	slices.Sort(libraries)
	return strings.Join(append([]string{system, machine, version, state}, slices.Compact(libraries)...), " ")
}
