//! `make docs`: writes the generated documents.

fn main() -> std::io::Result<()> {
    for document in probing_testkit::documents() {
        std::fs::write(document.path, document.text)?;
    }
    Ok(())
}
